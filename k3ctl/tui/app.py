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
from textual.containers import Container
from textual.css.query import NoMatches
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from k3ctl.client.frames import FrameSource
from k3ctl.tui.asking import Answered, Asker
from k3ctl.tui.chrome import banner_lines, footer_line, tabs_line, top_line
from k3ctl.tui.deck import STEP_S, Deck, parse_moment
from k3ctl.tui.deeds import Deed
from k3ctl.tui.dialogs import ConfirmDialog
from k3ctl.tui.exports import export_folder, save
from k3ctl.tui.feed import LEAST_INTERVAL_S, Feed, Fetched, Recorded
from k3ctl.tui.filter import parse_filter
from k3ctl.tui.goto import PlaceSuggester, find_place, places
from k3ctl.tui.ink import BLANK, Ink, Line, line, quiet, wrap
from k3ctl.tui.keys import KeysScreen, footer_bindings, key_help
from k3ctl.tui.marks import Marks, marks_for
from k3ctl.tui.palette import ConsoleCommands
from k3ctl.tui.pane import TALL_LINES, WIDE_COLUMNS, Pane, PaneSpec
from k3ctl.tui.panes_list import PANES
from k3ctl.tui.snapshot import EMPTY, Snapshot, Source
from k3ctl.tui.themes import THEMES, all_themes, colourless, theme_for
from k3ctl.tui.trail import Trail
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.prompt import Prompt
from k3ctl.tui.writing import WriteGuard
from k3d.errors import K3Error, Refused
from k3d.store.frame import Frame

MESSAGE_S = 8.0
MOST_INTERVAL_S = 4.0
DRAWING_SHARE = 0.2
LATE_INTERVALS = 2.0
PLACEHOLDERS = {
    "/": "filter: text, !text for all but it, or a regular expression",
    ":": "go to: node, tier, lane, pane by name, expert LAYER/NUMBER",
    "@": "time: 03:12, 03:12:09, -10m, 2026-01-31 03:12",
}


class ConsoleApp(App[None]):
    """The whole console. `guard` says whether anything may be changed; without one, all may."""

    CSS = """
    Screen { layers: below; background: $background; color: $foreground; }
    #top, #tabs, #foot { height: 1; }
    #top { background: $panel; }
    #foot { background: $panel; }
    #body { height: 1fr; padding: 1 0 0 0; }
    Screen.-low #body { padding: 0; }
    #banner, #message { height: auto; max-height: 4; }
    #message { background: $panel; padding: 0 1; display: none; }
    #message.said { display: block; }
    .-ascii RowTable, .-ascii VerticalScroll, .-ascii OptionList, .-ascii ScrollView {
        scrollbar-size: 0 0;
    }
    .-ascii ConfirmDialog > Vertical, .-ascii KeysScreen > VerticalScroll {
        border: ascii $accent;
    }
    CommandPalette > Vertical { width: 80%; max-width: 90; }
    CommandPalette SearchIcon { display: none; }
    .-ascii CommandPalette #--input, .-ascii CommandPalette CommandList { border: none; }
    Screen:ansi #top, Screen:ansi #foot { background: ansi_default; }
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
        Binding("q,ctrl+c,ctrl+q", "quit", "quit"),
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
        self.pane_name = PANES[0].name
        self._source = source
        self._live = live
        self._guard = guard or WriteGuard(None)
        self._read_only = self._guard.reason()
        self._asked_interval_s = max(LEAST_INTERVAL_S, interval_s)
        self._interval_s = self._asked_interval_s
        self._feed = Feed(source, self.post_message, history=history)
        self._asker = Asker(self.post_message)
        self._deck = Deck(start_ms) if self._feed.recorded is not None else None
        self._kept: dict[str, str] = {}
        self._opened_panes: set[str] = set()
        self._mounting: set[str] = set()
        self._bound_for: tuple[str, str] | None = None
        self._paused = False
        self._frame_at_s: float | None = None
        self._error: K3Error | None = None
        self._message: tuple[str, str] | None = None
        self._message_timer: Any = None
        self._drawing_s = 0.0
        self._debug = os.environ.get("K3_DEBUG") == "1"
        self._suggester = PlaceSuggester()
        for pane in PANES:
            self.bind(pane.key, f"pane('{pane.name}')", description=pane.title, show=False)
        if self._deck is not None:
            self._bind_deck()

    # What panes may use

    @property
    def live(self) -> Any:
        """The client of the running Station; None in a replay."""
        return None if self._deck is not None else self._live or self._source

    @property
    def may_write(self) -> bool:
        return self._deck is None and self._read_only is None

    def ask(
        self,
        key: str,
        call: Callable[[], Any],
        then: Callable[[Any], None],
        failed: Callable[[K3Error], None] | None = None,
    ) -> bool:
        return self._asker.ask(key, call, then, failed or self._say_error)

    def carry_out(self, deed: Deed, done: Callable[[], None] | None = None) -> None:
        if not self.may_write:
            self.say(self._read_only or "a replay cannot be changed", "warning")
            return

        def answered(wanted: bool | None) -> None:
            if wanted and self.may_write:
                self.say(f"$ {deed.command}")
                self.ask(f"deed {deed.command}", do, finished)

        def do() -> str:
            reason = self._guard.reason()  # the Station may be another one by now
            if reason is not None:
                raise Refused(f"nothing was changed: {reason}")
            return deed.call()

        def finished(sentence: str) -> None:
            self.say(sentence)
            if done is not None:
                done()

        self.push_screen(ConfirmDialog(deed), answered)

    def say(self, sentence: str, severity: str = "note") -> None:
        self._message = (sentence, severity)
        if self._message_timer is not None:
            self._message_timer.stop()
        self._message_timer = self.set_timer(MESSAGE_S, self._hush)
        self._redraw("#message")

    def go_to(self, kind: str, name: str) -> bool:
        if kind == "pane":
            self.action_pane(name)
            return True
        spec = next((pane for pane in PANES if kind in pane.places), None)
        if spec is None:
            self.say(f"no pane shows a {kind}", "warning")
            return False
        self.action_pane(spec.name)
        if spec.name not in self._opened_panes:
            self._bound_for = (kind, name)
            return True
        if self.pane is not None and self.pane.go(kind, name):
            return True
        self.say(f"there is no {kind} {name} now", "warning")
        return False

    # Composition

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw_top, id="top")
        yield Drawing(self._draw_tabs, id="tabs")
        yield Drawing(self._draw_banner, fit=True, id="banner")
        yield Container(id="body")
        yield Drawing(self._draw_message, fit=True, id="message")
        yield Prompt(id="prompt")
        yield Drawing(self._draw_foot, id="foot")

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self._redraw("#foot"))
        self.theme_changed_signal.subscribe(self, lambda _: self._repaint())
        self.action_pane(self.pane_name)
        self._feed.start()
        if self._deck is not None:
            self._seek(self._deck.at_ms)
        else:
            self._feed.tick()
        self._timer = self.set_interval(self._interval_s, self._tick)

    def on_unmount(self) -> None:
        self._feed.close()

    @property
    def pane(self) -> Pane | None:
        """The pane in front."""
        try:
            return self.query_one(f"#pane-{self.pane_name}", Pane)
        except NoMatches:
            return None

    # Frames

    def _tick(self) -> None:
        if self._deck is not None:
            if self._deck.playing:
                self._step(1)
            return
        if self._paused:
            return
        self._feed.tick()
        if self._frame_at_s is None or self._late() or self._error is not None:
            self._show(self._make())

    def on_fetched(self, message: Fetched) -> None:
        """The newest answer."""
        if message.seek:
            self.trail.clear()
        for frame in message.backlog:
            self.trail.add(frame)
        if self._paused:
            return
        frame = message.frame
        if frame is not None:
            self._error = None
            self._frame_at_s = time.monotonic()
            self.trail.add(frame)
            if self._deck is not None:
                self._deck.at_ms = frame.at_ms
        elif message.error is not None:
            self._error = message.error
            if self._deck is not None:
                self._deck.playing = False
                self._say_error(message.error)
        self._show(self._make(frame))

    def _make(self, frame: Frame | None = None) -> Snapshot:
        """The snapshot of now; with a new frame, or the last one grown older."""
        old = self.snapshot
        age_s = 0.0
        if frame is None and self._frame_at_s is not None and self._deck is None:
            age_s = time.monotonic() - self._frame_at_s
        error = self._error
        reason, hint = (None, None) if error is None else (error.message, error.hint)
        source = self._source_state()
        if source == "late":
            reason = f"the Station has not answered for {self._feed.open_s or age_s:.0f} s"
        return Snapshot(
            frame=frame or old.frame,
            age_s=age_s,
            source=source,
            interval_s=self._asked_interval_s,
            number=old.number + (frame is not None),
            reason=reason,
            hint=hint,
        )

    def _source_state(self) -> Source:
        if self._deck is not None:
            return "replay"
        if self._paused:
            return "paused"
        if self._error is not None:
            return "lost"
        if self._late():
            return "late"
        return "connecting" if self._frame_at_s is None else "live"

    def _late(self) -> bool:
        open_s = self._feed.open_s
        return open_s is not None and open_s > LATE_INTERVALS * self._asked_interval_s

    def _show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot: the lines around the panes and the pane in front, if it is."""
        began = time.perf_counter()
        self.snapshot = snapshot
        self._suggester.known = places(snapshot, PANES) if self._prompt_open(":") else ()
        if isinstance(self.screen, ConfirmDialog | KeysScreen):
            return
        with self.batch_update():
            for name in ("#top", "#banner"):
                self._redraw(name)
            pane = self.pane
            if pane is not None and self.pane_name in self._opened_panes:
                pane.show(snapshot)
            if self._debug:
                self._redraw("#foot")
        self._drawing_s = time.perf_counter() - began
        self._keep_pace()

    def _keep_pace(self) -> None:
        """Slower when drawing takes more than its share of the interval, and back again."""
        wanted = self._asked_interval_s
        while wanted < MOST_INTERVAL_S and self._drawing_s > DRAWING_SHARE * wanted:
            wanted *= 2
        if wanted != self._interval_s and self.is_running:
            self._interval_s = wanted
            self._timer.stop()
            self._timer = self.set_interval(wanted, self._tick)

    # Lines around the panes

    def _redraw(self, name: str) -> None:
        try:
            drawing = self.screen_stack[0].query_one(name, Drawing)
        except (NoMatches, IndexError):
            return
        if name == "#message":
            drawing.set_class(self._message is not None, "said")
        drawing.redraw()

    def _repaint(self) -> None:
        """All of it, in another theme."""
        self.screen_stack[0].refresh(layout=True)
        for widget in self.screen_stack[0].query("*"):
            widget.refresh()

    def _draw_top(self, width: int, _height: int) -> list[Line]:
        return [top_line(self.snapshot, self.marks, width)]

    def _draw_tabs(self, width: int, _height: int) -> list[Line]:
        return [tabs_line(PANES, self.pane_name, self.marks, width)]

    def _draw_banner(self, width: int, _height: int) -> list[Line]:
        deck = self._deck
        return banner_lines(
            self.snapshot, self.marks, width,
            read_only=self._read_only, filtered=self._filter_words(),
            playing=deck is not None and deck.playing,
        )  # fmt: skip

    def _draw_message(self, width: int, _height: int) -> list[Line]:
        if self._message is None:
            return []
        sentence, severity = self._message
        severities: dict[str, Ink] = {"warning": "warn", "alert": "bad"}
        return wrap(sentence, width, severities.get(severity, "strong"), indent=2)[:4]

    def _draw_foot(self, width: int, _height: int) -> list[Line]:
        right: Line = BLANK
        if self._debug:
            right = line(quiet(f"drawn in {self._drawing_s * 1000:.1f} ms "))
        prompt = self.screen_stack[0].query_one(Prompt)
        active = self.screen_stack[0].active_bindings.values()
        shown = prompt.hints if prompt.is_open else footer_bindings(active, self)
        return [footer_line(shown, self.marks, width, right)]

    def _filter_words(self) -> str | None:
        text = self._kept.get(self.pane_name)
        if not text:
            return None
        pane = self.pane
        table = None if pane is None else pane.table()
        count = "" if table is None else f" ({len(table.rows)} shown, {table.hidden_count} not)"
        return f"filter {text}{count}"

    def _hush(self) -> None:
        self._message = None
        self._redraw("#message")

    def _say_error(self, error: K3Error) -> None:
        self.say(str(error), "alert")

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
            yield ("Go on" if self._paused else "Pause"), "pause"
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
        """Bring a pane to the front; the first time, make it."""
        spec = next((pane for pane in PANES if pane.name == name), None)
        if spec is None:
            self.say(f"there is no pane {name}", "warning")
            return
        before = self.pane
        self.pane_name = name
        pane = self.pane
        with self.batch_update():
            if before is not None and before is not pane:
                before.display = False
            if pane is not None:
                pane.display = True
                if name in self._opened_panes:
                    self._opened(pane)
            elif name not in self._mounting:
                self._mounting.add(name)
                self.call_next(self._mount_pane, spec)
            self._redraw("#tabs")
            self._redraw("#banner")

    async def _mount_pane(self, spec: PaneSpec) -> None:
        """Make a pane; it is opened when all that is in it is there."""
        pane = spec.make()
        if self.may_write:
            pane.arm()
        await self.query_one("#body", Container).mount(pane)
        self._opened_panes.add(spec.name)
        pane.display = spec.name == self.pane_name
        self._opened(pane)

    def _opened(self, pane: Pane) -> None:
        if pane is not self.pane:
            return
        pane.show(self.snapshot)
        self._apply_filter(self._kept.get(self.pane_name, ""))
        self._redraw("#foot")
        if not self._prompt_open():
            pane.focus_first()
        if self._bound_for is not None:
            kind, name = self._bound_for
            self._bound_for = None
            self.go_to(kind, name)

    def action_prompt(self, mark: str) -> None:
        prompt = self.query_one(Prompt)
        text = self._kept.get(self.pane_name, "") if mark == "/" else ""
        self._suggester.known = places(self.snapshot, PANES)
        suggester = self._suggester if mark == ":" else None
        prompt.open(mark, text, placeholder=PLACEHOLDERS[mark], suggester=suggester)

    def on_prompt_typed(self, message: Prompt.Typed) -> None:
        if message.mark == "/":
            self._apply_filter(message.text, quiet=True)

    def on_prompt_ended(self, message: Prompt.Ended) -> None:
        if self.pane is not None:
            self.pane.focus_first()
        text = message.text
        match message.mark:
            case "/":
                self._apply_filter("" if text is None else text)
            case ":" if text and text.strip():
                try:
                    place = find_place(text, places(self.snapshot, PANES))
                except K3Error as error:
                    self._say_error(error)
                else:
                    self.go_to(place.kind, place.name)
            case "@" if text and self._deck is not None:
                try:
                    self._seek(parse_moment(text, self._deck.at_ms or 0))
                except K3Error as error:
                    self._say_error(error)
            case _:
                pass

    def _prompt_open(self, mark: str | None = None) -> bool:
        prompt = self.screen_stack[0].query_one(Prompt)
        return prompt.is_open and mark in (None, prompt.mark)

    def _apply_filter(self, text: str, *, quiet: bool = False) -> None:
        """Let the pane in front show what the filter keeps; a bad expression is said on Enter."""
        try:
            found = parse_filter(text)
        except K3Error as error:
            if not quiet:
                self._say_error(error)
            return
        self._kept[self.pane_name] = text.strip()
        if self.pane is not None:
            self.pane.narrow(found)
        self._redraw("#banner")

    def action_leave(self) -> None:
        if self._message is not None:
            self._hush()
        pane = self.pane
        if pane is not None and pane.back():
            return
        if self._kept.get(self.pane_name):
            self._apply_filter("")

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._show(self._make())
        if not self._paused:
            self._feed.tick()

    def action_copy_id(self) -> None:
        chosen = None if self.pane is None else self.pane.chosen()
        if chosen is None:
            self.say("nothing is chosen", "warning")
            return
        self.copy_to_clipboard(chosen.id)
        self.say(f"copied {chosen.id}")

    def action_copy_row(self) -> None:
        import json

        chosen = None if self.pane is None else self.pane.chosen()
        if chosen is None:
            self.say("nothing is chosen", "warning")
            return
        text = json.dumps(dict(chosen.record), ensure_ascii=False)
        self.copy_to_clipboard(text)
        self.say(f"copied {chosen.id} as JSON, {len(text)} characters")

    def action_save(self) -> None:
        sheet = None if self.pane is None else self.pane.sheet()
        frame = self.snapshot.frame
        at_ms = round(time.time() * 1000) if frame is None else frame.at_ms
        svg = self.export_screenshot(title=f"k3pod {self.pane_name}")
        folder, name = export_folder(self.home), self.pane_name
        self.ask(
            "save",
            lambda: save(sheet, svg, folder, name, at_ms),
            lambda paths: self.say("saved " + ", ".join(str(path) for path in paths)),
        )

    def action_keys(self) -> None:
        pane = self.pane
        here, anywhere = key_help(self.screen.active_bindings.values(), self)
        title = next(each.title for each in PANES if each.name == self.pane_name)
        words = "" if pane is None else pane.HELP
        self.push_screen(KeysScreen(title, here, anywhere, words, self.marks))

    def action_theme(self, name: str) -> None:
        self.theme = name

    def action_next_theme(self) -> None:
        self.theme = THEMES[(THEMES.index(self.theme) + 1) % len(THEMES)]
        self.say(f"theme {self.theme}")

    async def on_answered(self, message: Answered) -> None:
        message.deliver()

    # Replay

    def _bind_deck(self) -> None:
        for key, by, words in (
            ("left_square_bracket", -1, "a frame back"),
            ("right_square_bracket", 1, "a frame on"),
            ("left_curly_bracket", -STEP_S, "a minute back"),
            ("right_curly_bracket", STEP_S, "a minute on"),
        ):
            self.bind(key, f"step({by})", description=words, show=False)
        self.bind("at", "prompt('@')", description="to a time", key_display="@")
        self.bind("space", "play", description="play")

    def action_play(self) -> None:
        if self._deck is not None:
            self._deck.playing = not self._deck.playing
            self._redraw("#banner")

    def action_step(self, by: int) -> None:
        self._step(by)

    def _step(self, by: int) -> None:
        deck = self._deck
        if deck is None or deck.at_ms is None:
            return
        if by in (1, -1):
            self._feed.seek(deck.at_ms + (0 if by > 0 else -1), onward=by > 0)
        else:
            deck.at_ms += by * 1000
            self._feed.seek(deck.at_ms)

    def _seek(self, at_ms: int | None) -> None:
        if at_ms is None:
            self._feed.tick()
        else:
            self._feed.seek(at_ms)
