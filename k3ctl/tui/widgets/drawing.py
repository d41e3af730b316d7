"""A widget that shows lines of ink, and repaints only those that changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from k3ctl.tui.ink import BLANK, Ink, Line, cut
from k3ctl.tui.themes import inks

if TYPE_CHECKING:
    from textual import events

    from k3ctl.tui.app import ConsoleApp

Draw = Callable[[int, int], Sequence[Line]]
"""Width and height in columns and lines to lines. A drawing of automatic height gets height 0."""


class Drawing(Widget):
    """Lines from a function of its size; `redraw` calls it again."""

    DEFAULT_CSS = """
    Drawing { height: 1fr; }
    Drawing.fit { height: auto; }
    """

    def __init__(
        self,
        draw: Draw,
        *,
        fit: bool = False,
        id: str | None = None,  # noqa: A002 - as Textual calls it
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._draw = draw
        self._fit = fit
        self._lines: list[Line] = []
        self.set_class(fit, "fit")

    @property
    def lines(self) -> Sequence[Line]:
        """What it shows."""
        return self._lines

    def redraw(self) -> None:
        """Draw anew; what has not changed is not painted again."""
        width, height = self.size
        if not width or not self.is_attached:
            return
        before = len(self._lines)
        self._take(self._draw(width, 0 if self._fit else height), width)
        if self._fit and len(self._lines) != before:
            self.refresh(layout=True)

    def _take(self, lines: Sequence[Line], width: int) -> None:
        """Show these lines; those that are others than before are painted."""
        old, new = self._lines, list(lines)
        self._lines = new
        changed = [
            Region(0, y, width, 1)
            for y in range(max(len(old), len(new)))
            if (old[y] if y < len(old) else BLANK) != (new[y] if y < len(new) else BLANK)
        ]
        if changed:
            self.refresh(*changed)

    def on_resize(self, _: events.Resize) -> None:
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if self._fit:
            # The layout may leave it where and as large as it was, and then paints nothing.
            self._take(self._draw(width, 0), width)
            return len(self._lines)
        return super().get_content_height(container, viewport, width)

    def render_line(self, y: int) -> Strip:
        base = self.visual_style.rich_style
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, base)
        more = cast("ConsoleApp", self.app).marks.more
        return strip_of(self._lines[y], width, base, self.app.theme, more)


def strip_of(spans: Line, width: int, base: Style, theme: str, mark: str = "") -> Strip:
    """A line as Textual paints it, in the inks of a theme on a base style; cut to the width, with
    a mark where that is given."""
    styles = _inked(base, theme)
    segments = [Segment(text, styles[ink]) for text, ink in cut(spans, width, mark)]
    return Strip(segments).adjust_cell_length(width, base)


@lru_cache(maxsize=32)
def _inked(base: Style, theme: str) -> dict[Ink, Style]:
    """The inks of a theme on a base style."""
    return {ink: base + style for ink, style in inks(theme).items()}
