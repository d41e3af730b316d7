"""The lines around the panes, as widgets: top, tabs, banner, message and foot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.dom import DOMNode
from textual.timer import Timer

from k3ctl.tui.chrome import banner_lines, footer_line, tabs_line, top_line
from k3ctl.tui.ink import BLANK, Ink, Line, line, quiet, wrap
from k3ctl.tui.keys import footer_bindings
from k3ctl.tui.pane import Console, PaneSpec
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.prompt import Prompt

MESSAGE_S = 8.0
MOST_MESSAGE_LINES = 4
SEVERITIES: dict[str, Ink] = {"warning": "warn", "alert": "bad"}


class TopLine(Drawing):
    """The pod, and how its source of frames does."""

    DEFAULT_CSS = """
    TopLine { height: 1; background: $panel; }
    TopLine:ansi { background: ansi_default; }
    """

    def __init__(self, console: Console) -> None:
        super().__init__(self._top, id="top")
        self._of = console

    def _top(self, width: int, _height: int) -> Sequence[Line]:
        return [top_line(self._of.snapshot, self._of.marks, width)]


class Tabs(Drawing):
    """The panes and their keys; `current` is in front."""

    DEFAULT_CSS = """
    Tabs { height: 1; }
    """

    def __init__(self, console: Console, panes: Sequence[PaneSpec], current: str) -> None:
        super().__init__(self._tabs, id="tabs")
        self.current = current
        self._of = console
        self._panes = panes

    def _tabs(self, width: int, _height: int) -> Sequence[Line]:
        return [tabs_line(self._panes, self.current, self._of.marks, width)]


class Banner(Drawing):
    """What has to be known first. `filtered` and `playing` tell what holds when it is drawn."""

    DEFAULT_CSS = """
    Banner { height: auto; max-height: 4; }
    """

    def __init__(
        self,
        console: Console,
        *,
        read_only: str | None,
        filtered: Callable[[], str | None],
        playing: Callable[[], bool],
    ) -> None:
        super().__init__(self._banner, fit=True, id="banner")
        self._of = console
        self._read_only = read_only
        self._filtered = filtered
        self._playing = playing

    def _banner(self, width: int, _height: int) -> Sequence[Line]:
        return banner_lines(
            self._of.snapshot, self._of.marks, width,
            read_only=self._read_only, filtered=self._filtered(), playing=self._playing(),
        )  # fmt: skip


class Sentence(Drawing):
    """A sentence that goes away by itself; no line at all without one."""

    DEFAULT_CSS = f"""
    Sentence {{
        height: auto; max-height: {MOST_MESSAGE_LINES};
        background: $panel; padding: 0 1; display: none;
    }}
    Sentence.said {{ display: block; }}
    """

    def __init__(self) -> None:
        super().__init__(self._message, fit=True, id="message")
        self._said: tuple[str, Ink] | None = None
        self._timer: Timer | None = None

    def say(self, sentence: str, severity: str) -> None:
        self._said = (sentence, SEVERITIES.get(severity, "strong"))
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(MESSAGE_S, self.hush)
        self.redraw()

    def hush(self) -> None:
        self._said = None
        self.redraw()

    def redraw(self) -> None:
        self.set_class(self._said is not None, "said")
        super().redraw()

    def _message(self, width: int, _height: int) -> Sequence[Line]:
        if self._said is None:
            return []
        sentence, ink = self._said
        return wrap(sentence, width, ink, indent=2)[:MOST_MESSAGE_LINES]


class Foot(Drawing):
    """Keys that work now: of the prompt while it is open, else of the pane and of `everywhere`.

    With `debug` the time that the frame before took to draw is at the end.
    """

    DEFAULT_CSS = """
    Foot { height: 1; background: $panel; }
    Foot:ansi { background: ansi_default; }
    """

    def __init__(
        self, console: Console, prompt: Prompt, everywhere: DOMNode, *, debug: bool
    ) -> None:
        super().__init__(self._foot, id="foot")
        self.drawn_s = 0.0
        self._of = console
        self._prompt = prompt
        self._everywhere = everywhere
        self._debug = debug

    def framed(self) -> None:
        """A frame is being drawn."""
        if self._debug:
            self.redraw()

    def _foot(self, width: int, _height: int) -> Sequence[Line]:
        right: Line = BLANK
        if self._debug:
            right = line(quiet(f"drawn in {self.drawn_s * 1000:.1f} ms "))
        active = self.screen.active_bindings.values()
        prompt = self._prompt
        shown = prompt.hints if prompt.is_open else footer_bindings(active, self._everywhere)
        return [footer_line(shown, self._of.marks, width, right)]
