"""Lines that may be longer than the screen: all there is to say of one thing, scrolled by keys."""

from __future__ import annotations

from textual.app import ComposeResult

from k3ctl.tui.widgets.drawing import Draw, Drawing
from k3ctl.tui.widgets.scroll import Scroll


class Detail(Scroll):
    """A drawing of automatic height in a scroll."""

    DEFAULT_CSS = "Detail Drawing { min-height: 1; }"

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
