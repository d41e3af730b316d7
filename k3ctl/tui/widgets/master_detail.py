"""A table and the page of its row: beside it, below it, or in its place, as there is room."""

from __future__ import annotations

from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from k3ctl.tui.widgets.detail import Detail
from k3ctl.tui.widgets.drawing import Draw
from k3ctl.tui.widgets.row_table import RowTable

BESIDE_COLUMNS = 168
LEAST_PAGE = 12

Arrangement = Literal["beside", "below", "table", "page"]


class MasterDetail(Container):
    """The page follows the cursor; where both do not fit, Enter opens it and Esc leaves it."""

    DEFAULT_CSS = """
    MasterDetail { height: 1fr; layout: vertical; }
    MasterDetail > RowTable { width: 1fr; height: 1fr; }
    MasterDetail > Detail { width: 1fr; display: none; }
    MasterDetail.beside { layout: horizontal; }
    MasterDetail.beside > RowTable { width: 3fr; }
    MasterDetail.beside > Detail { width: 2fr; display: block; padding: 0 0 0 3; }
    MasterDetail.below > Detail { display: block; padding: 1 0 0 0; }
    MasterDetail.page > RowTable { display: none; }
    MasterDetail.page > Detail { display: block; }
    """

    def __init__(self, table: RowTable, draw_page: Draw) -> None:
        super().__init__()
        self.table = table
        self._page = Detail(draw_page)
        self._opened = False

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._page

    @property
    def is_open(self) -> bool:
        """Whether the page was opened."""
        return self._opened

    def open(self) -> None:
        """Go to the page."""
        self._opened = True
        self.settle()
        self._page.focus()

    def leave(self) -> bool:
        """Back to the table; False when there already."""
        if not self._opened:
            return False
        self._opened = False
        self.settle()
        self.table.focus()
        return True

    def redraw(self) -> None:
        """The page, after what it shows has changed."""
        self.settle()
        if not self.has_class("table"):
            self._page.redraw()

    def settle(self) -> None:
        wanted = self._wanted()
        if self.has_class(wanted):
            return
        for each in ("beside", "below", "table", "page"):
            self.set_class(each == wanted, each)
        self.call_after_refresh(self._page.redraw)

    def _wanted(self) -> Arrangement:
        if self.size.width >= BESIDE_COLUMNS:
            return "beside"
        if self._opened:
            return "page"
        rows = len(self.table.rows) + 2
        fits = bool(self.table.rows) and self.size.height - rows >= LEAST_PAGE
        self.table.styles.height = rows if fits else "1fr"
        return "below" if fits else "table"

    def on_resize(self, _: events.Resize) -> None:
        self.settle()

    def on_row_table_moved(self) -> None:
        if not self.has_class("table"):
            self._page.redraw()
            if self._page.scroll_offset.y:  # at its top already it would be laid out for nothing
                self._page.scroll_home(animate=False)

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        event.stop()
        self.open()
