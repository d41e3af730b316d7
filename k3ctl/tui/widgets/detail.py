"""Lines that may be longer than the screen: all there is to say of one thing, scrolled by keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from k3ctl.tui.widgets.drawing import Draw, Drawing


class Detail(VerticalScroll, inherit_bindings=False):
    """A drawing of automatic height in a scroll. Left and right are free for what holds it."""

    DEFAULT_CSS = """
    Detail { height: 1fr; scrollbar-size-vertical: 1; }
    Detail Drawing { min-height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "up", show=False),
        Binding("down,j", "scroll_down", "down", show=False),
        Binding("pageup,ctrl+b", "page_up", "page up", show=False),
        Binding("pagedown,ctrl+f", "page_down", "page down", show=False),
        Binding("home,g", "scroll_home", "top", show=False),
        Binding("end,G", "scroll_end", "end", show=False),
    ]

    def __init__(
        self,
        draw: Draw,
        *,
        id: str | None = None,  # noqa: A002 Textual's own name
    ) -> None:
        super().__init__(id=id)
        self._lines_of = draw

    def compose(self) -> ComposeResult:
        yield Drawing(self._lines_of, fit=True)

    def redraw(self) -> None:
        """Draw its lines anew; a new height is laid out."""
        self.query_one(Drawing).redraw()

    def restart(self) -> None:
        """Draw from the top: it is about another thing."""
        self.scroll_home(animate=False)
        self.query_one(Drawing).refresh(layout=True)
        self.redraw()
