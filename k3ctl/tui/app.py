"""The console: frames in, panes out.

A timer says when a tick has come; the feed asks in its thread; `Fetched` replaces one that was not
drawn yet; the pane in front draws inside one batch. A frame that takes more than a fifth of the
interval to draw makes the interval longer until it does not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, Provider
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from k3ctl.client.frames import FrameSource
from k3ctl.tui.around import Banner, Foot, Sentence, Tabs, TopLine
from k3ctl.tui.arrivals import Arrivals
from k3ctl.tui.asking import Answered, Asker
from k3ctl.tui.body import Body
from k3ctl.tui.changes import Changes
from k3ctl.tui.copying import Copying
from k3ctl.tui.deck import KEYS, REPLAYED, Deck
from k3ctl.tui.deeds import Deed
from k3ctl.tui.dialogs import ConfirmDialog
from k3ctl.tui.feed import Feed, Fetched, Recorded
from k3ctl.tui.keys import KeysScreen, key_help
from k3ctl.tui.marks import Marks, marks_for
from k3ctl.tui.pace import Pace
from k3ctl.tui.palette import ConsoleCommands
from k3ctl.tui.pane import TALL_LINES, WIDE_COLUMNS, Pane
from k3ctl.tui.panes_list import PANES
from k3ctl.tui.snapshot import EMPTY, Snapshot
from k3ctl.tui.themes import THEMES, all_themes, colourless, theme_for
from k3ctl.tui.trail import Trail
from k3ctl.tui.typed import Typed
from k3ctl.tui.widgets.prompt import Prompt
from k3ctl.tui.writing import WriteGuard
from k3d.errors import K3Error


class ConsoleApp(App[None]):
    """The whole console. `guard` says whether anything may be changed; without one, all may."""

    CSS = """
    Screen { layers: below; background: $background; color: $foreground; }
    .-ascii RowTable, .-ascii VerticalScroll, .-ascii OptionList, .-ascii ScrollView {
        scrollbar-size: 0 0;
    }
    .-ascii ConfirmDialog > Vertical, .-ascii KeysScreen > Scroll {
        border: ascii $accent;
    }
    CommandPalette > Vertical { width: 80%; max-width: 90; }
    CommandPalette SearchIcon { display: none; }
    .-ascii CommandPalette #--input, .-ascii CommandPalette CommandList { border: none; }
    """
    TITLE = "k3pod"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ConsoleCommands}
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [
        (0, "-narrow"), (WIDE_COLUMNS, "-wide"),
    ]  # fmt: skip
    VERTICAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [
        (0, "-low"), (20, "-middle"), (TALL_LINES, "-tall"),
    ]  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "prompt('/')", "filter", key_display="/"),
        Binding("colon", "prompt(':')", "go to", key_display=":"),
        Binding("p", "pause", "pause"),
        Binding("c", "copy_id", "copy id", show=False),
        Binding("y", "copy_row", "copy row as JSON", show=False),
        Binding("s", "save", "save table and screen", show=False),
        Binding("escape", "leave", "back", show=False),
        Binding("ctrl+t", "next_theme", "next theme", show=False),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("q,ctrl+q", "quit", "quit"),
        # Also in a line that is typed and in a dialog, where Textual would have it copy.
        Binding("ctrl+c", "quit", "quit", priority=True),
    ]

    def __init__(
        self,
        source: FrameSource | Recorded,
        *,
        interval_s: float = 1.0,
        theme: str | None = None,
        live: Any = None,
        guard: WriteGuard | None = None,
        history: Callable[[], Recorded] | None = None,
        home: Path | None = None,
        start_ms: int | None = None,
        marks: Marks | None = None,
    ) -> None:
        super().__init__()
        for each in BUILTIN_THEMES:
            self.unregister_theme(each)
        for each in all_themes():
            self.register_theme(each)
        self.no_color = False  # `mono` is without colour here, and readable
        self.theme = theme_for(theme)
        self.marks = marks or marks_for()
        self.set_class(self.marks.ascii, "-ascii")
        self.trail = Trail()
        self.home = home
        self.snapshot: Snapshot = EMPTY
        self._source = source
        self._live = live
        self._feed = Feed(source, self.post_message, history=history)
        self._deck = Deck(self._feed, start_ms) if self._feed.recorded is not None else None
        replayed = self._deck is not None
        self._pace = Pace(interval_s, self._tick, self.set_interval)
        self._arrivals = Arrivals(self._feed, self._pace.asked_s, replayed=replayed)
        self._asker = Asker(self.post_message)
        guard = guard or WriteGuard(None)
        self._changes = Changes(self, guard, self.push_screen)
        self._top = TopLine(self)
        self._tabs = Tabs(self, PANES, PANES[0].name)
        self._banner = Banner(
            self, read_only=self._changes.reason,
            filtered=lambda: self._body.filter_words(), playing=lambda: self._playing,
        )  # fmt: skip
        self._sentence = Sentence()
        self._prompt = Prompt(id="prompt")
        self._foot = Foot(self, self._prompt, self, debug=os.environ.get("K3_DEBUG") == "1")
        self._body = Body(
            self, PANES,
            prompt=self._prompt, tabs=self._tabs, banner=self._banner, foot=self._foot,
        )  # fmt: skip
        self._typed = Typed(self, self._prompt, self._body, self._deck)
        self._copying = Copying(self, self._body)
        for pane in PANES:
            self.bind(pane.key, f"pane('{pane.name}')", description=pane.title, show=False)
        for key in KEYS if replayed else ():
            self.bind(
                key.key, key.action,
                description=key.description, show=key.show, key_display=key.key_display,
            )  # fmt: skip

    # What panes may use

    @property
    def live(self) -> Any:
        """The client of the running Station; None in a replay."""
        return None if self._deck is not None else self._live or self._source

    @property
    def not_live(self) -> str | None:
        return REPLAYED if self._deck is not None else None

    @property
    def may_write(self) -> bool:
        return self._changes.allowed

    def ask(
        self,
        key: str,
        call: Callable[[], Any],
        then: Callable[[Any], None],
        failed: Callable[[K3Error], None] | None = None,
    ) -> bool:
        return self._asker.ask(key, call, then, failed or self._say_error)

    def carry_out(self, deed: Deed, done: Callable[[], None] | None = None) -> None:
        self._changes.carry_out(deed, done)

    def say(self, sentence: str, severity: str = "note") -> None:
        self._sentence.say(sentence, severity)

    def go_to(self, kind: str, name: str) -> bool:
        return self._body.go_to(kind, name)

    # Composition

    def compose(self) -> ComposeResult:
        yield self._top
        yield self._tabs
        yield self._banner
        yield self._body
        yield self._sentence
        yield self._prompt
        yield self._foot

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self._foot.redraw())
        self.theme_changed_signal.subscribe(self, lambda _: self._repaint())
        self._body.bring(self.pane_name)
        self._feed.start()
        if self._deck is not None:
            self._deck.start()
        else:
            self._feed.tick()
        self._pace.start()

    def on_unmount(self) -> None:
        self._feed.close()

    @property
    def pane(self) -> Pane | None:
        """The pane in front."""
        return self._body.front

    @property
    def pane_name(self) -> str:
        return self._body.front_name

    # Frames

    def _tick(self) -> None:
        if self._deck is not None:
            self._deck.tick()
            return
        if self._arrivals.paused:
            return
        self._feed.tick()
        if self._arrivals.overdue:
            self._show(self._arrivals.snapshot(self.snapshot))

    def on_fetched(self, message: Fetched) -> None:
        """The newest answer."""
        if message.seek:
            self.trail.clear()
        for frame in message.backlog:
            self.trail.add(frame)
        if self._arrivals.paused:
            return
        self._arrivals.take(message)
        frame = message.frame
        if frame is not None:
            self.trail.add(frame)
            if self._deck is not None:
                self._deck.at_ms = frame.at_ms
        elif message.error is not None and self._deck is not None:
            self._deck.playing = False
            self._say_error(message.error)
        self._show(self._arrivals.snapshot(self.snapshot, frame))

    def _show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot: the lines around the panes and the pane in front, if it is."""
        began = time.perf_counter()
        self.snapshot = snapshot
        self._typed.framed()
        if isinstance(self.screen, ConfirmDialog | KeysScreen):
            return
        with self.batch_update():
            self._top.redraw()
            self._banner.redraw()
            self._body.show()
            self._foot.framed()
        self._foot.drawn_s = time.perf_counter() - began
        self._pace.drew(self._foot.drawn_s)

    # Looks

    def _repaint(self) -> None:
        """All of it, in another theme."""
        self.screen_stack[0].refresh(layout=True)
        for widget in self.screen_stack[0].query("*"):
            widget.refresh()

    def get_line_filters(self) -> list[LineFilter]:
        """None at all in 16 colours; no colour in mono, not even grey."""
        if colourless(self.theme):
            return [NoColor()]
        return list(super().get_line_filters())

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"k3-cursor": "#26324a", "k3-rule": "#2b3444", "k3-quiet": "#77839a"}

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("step", "play") and self._deck is None:
            return False
        return action != "pause" or self._deck is None

    def commands(self) -> Iterable[tuple[str, str]]:
        """Actions that the palette offers: words and action."""
        yield "Filter rows", "prompt('/')"
        yield "Go to a node, tier, lane or expert", "prompt(':')"
        if self._deck is None:
            yield ("Go on" if self._arrivals.paused else "Pause"), "pause"
        else:
            yield "Go to a time", "prompt('@')"
            yield ("Stand still" if self._deck.playing else "Play"), "play"
        yield "Save table and screen", "save"
        yield "Copy id", "copy_id"
        yield "Copy row as JSON", "copy_row"
        yield "Show keys", "keys"
        yield "Quit", "quit"

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return ()

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(placeholder="a command, a pane, a node"))

    def action_pane(self, name: str) -> None:
        self._body.bring(name)

    def do_deed(self, pane: str, action: str) -> None:
        """Go to a pane and do there what changes something, or say why that cannot be."""
        if self._changes.reason is not None:
            self.say(f"nothing is changed: {self._changes.reason}", "warning")
            return
        self._body.do(pane, action)

    def action_prompt(self, mark: str) -> None:
        self._typed.open(mark)

    def on_prompt_typed(self, message: Prompt.Typed) -> None:
        self._typed.changed(message)

    def on_prompt_ended(self, message: Prompt.Ended) -> None:
        self._typed.ended(message)

    def action_leave(self) -> None:
        self._sentence.hush()
        self._body.leave()

    def action_pause(self) -> None:
        self._arrivals.paused = not self._arrivals.paused
        self._show(self._arrivals.snapshot(self.snapshot))
        if not self._arrivals.paused:
            self._feed.tick()

    def action_play(self) -> None:
        if self._deck is not None:
            self._deck.playing = not self._deck.playing
            self._banner.redraw()

    def action_step(self, by: int) -> None:
        if self._deck is not None:
            self._deck.step(by)

    def action_copy_id(self) -> None:
        self._copying.copy_id()

    def action_copy_row(self) -> None:
        self._copying.copy_row()

    def action_save(self) -> None:
        self._copying.save()

    def action_keys(self) -> None:
        pane = self.pane
        here, anywhere = key_help(self.screen.active_bindings.values(), self)
        words = "" if pane is None else pane.HELP
        self.push_screen(KeysScreen(self._body.front_spec.title, here, anywhere, words, self.marks))

    def action_theme(self, name: str) -> None:
        self.theme = name

    def action_next_theme(self) -> None:
        self.theme = THEMES[(THEMES.index(self.theme) + 1) % len(THEMES)]
        self.say(f"theme {self.theme}")

    async def on_answered(self, message: Answered) -> None:
        message.deliver()

    @property
    def _playing(self) -> bool:
        return self._deck is not None and self._deck.playing

    def _say_error(self, error: K3Error) -> None:
        self.say(str(error), "alert")
