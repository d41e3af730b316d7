"""A table of rows by key: it repaints changed lines only, and keeps cursor, sort and filter.

A row has cells (what is shown) and values (what is sorted, saved and copied, in base units). Where
the columns do not all fit, those with the highest `drop` go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from k3ctl.tui.ink import Span, text_of
from k3ctl.tui.themes import cursor_style
from k3ctl.tui.widgets.columns import Column, Row, Widths
from k3ctl.tui.widgets.drawing import strip_of
from k3ctl.tui.widgets.row_lines import CURSOR_COLUMNS, Order, header_line, row_line

if TYPE_CHECKING:
    from textual import events

    from k3ctl.tui.filter import Filter
    from k3ctl.tui.marks import Marks


class RowTable(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows that are set as a whole, every time, and reconciled by key."""

    DEFAULT_CSS = """
    RowTable { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "page down", show=False),
        Binding("home,g", "edge(-1)", "first row", show=False),
        Binding("end,G", "edge(1)", "last row", show=False),
        Binding("enter", "open", "open"),
        Binding("o", "sort", "sort", key_display="o"),
        Binding("O", "reverse", "reverse the order", show=False),
    ]

    class Opened(Message):
        """Enter, or a click, on a row."""

        def __init__(self, table: RowTable, row: Row) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> RowTable:
            return self.table

    class Moved(Message):
        """The cursor stands on another row."""

        def __init__(self, table: RowTable, row: Row | None) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> RowTable:
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        marks: Callable[[], Marks],
        *,
        nothing: str = "nothing to show",
        headed: bool = True,
        id: str | None = None,  # noqa: A002 - as Textual calls it
    ) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self._marks = marks
        self._nothing = nothing
        self._head = 1 if headed else 0
        self._all: dict[str, Row] = {}
        self._rows: list[Row] = []
        self._keys: list[str] = []
        self._cursor: str | None = None
        self._filter: Filter | None = None
        self._order = Order()
        self._widths = Widths(self.columns)
        self._fitted_to = 0
        self._painted: dict[str, tuple[Row, tuple[object, ...], Strip]] = {}
        self._seen = False

    # What it holds

    @property
    def rows(self) -> Sequence[Row]:
        """The rows that are shown, in order."""
        return self._rows

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return None if self._cursor is None else self._all.get(self._cursor)

    @property
    def _room(self) -> int:
        """Columns beside the scroll bar."""
        return self.scrollable_content_region.width

    @property
    def filter(self) -> Filter | None:
        return self._filter

    @property
    def order(self) -> str | None:
        """Title of the column it is sorted by; None in the order rows were given in."""
        return None if self._order.by is None else self.columns[self._order.by].title

    @property
    def hidden_count(self) -> int:
        """Rows that the filter keeps out."""
        return len(self._all) - len(self._rows)

    def has(self, key: str) -> bool:
        """Whether there is such a row, be it one that the filter keeps out."""
        return key in self._all

    def record(self, row: Row) -> dict[str, Any]:
        """A row's values by the keys of its columns."""
        return {column.key: value for column, value in zip(self.columns, row.values, strict=True)}

    def set_rows(self, rows: Iterable[Row]) -> None:
        """Show these rows; the cursor stays on its key, or near where that was."""
        new = {row.key: row for row in rows}
        self._widths.note(new.values(), anew=new.keys() != self._all.keys())
        for row in new.values():  # one that says the same is the same: it is not painted again
            known = self._all.get(row.key)
            if known is not None and known == row:
                new[row.key] = known
        for gone in self._painted.keys() - new.keys():
            del self._painted[gone]
        self._all = new
        self._arrange()

    def narrow(self, kept: Filter | None) -> None:
        """Show only rows with a text that the filter keeps."""
        self._filter = kept
        self._arrange()

    def put_cursor(self, key: str) -> bool:
        """Move the cursor to a row and show it; False when there is no such row."""
        if key not in self._keys:
            return False
        self._move_to(self._keys.index(key))
        return True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys about rows are there while a row is to be seen."""
        return self._seen or action not in ("open", "sort", "reverse")

    def _look(self) -> None:
        seen = bool(self._rows) and self.size.height > self._head
        if seen != self._seen:
            self._seen = seen
            self.refresh_bindings()

    # Arranging

    def _arrange(self) -> None:
        rows = list(self._all.values())
        if self._filter is not None:
            keep = self._filter.keeps
            rows = [row for row in rows if keep("  ".join(text_of(cell) for cell in row.cells))]
        rows = self._order.sort(rows)
        keys = [row.key for row in rows]
        at = self._index()
        old, old_keys = self._rows, self._keys
        self._rows, self._keys = rows, keys
        self._look()
        if self._cursor not in self._all or self._cursor not in keys:
            self._cursor = keys[min(at, len(keys) - 1)] if keys else None
            self.post_message(self.Moved(self, self.row))
        if self._lay_out() or len(old) != len(rows):
            self.refresh()
            return
        top = round(self.scroll_offset.y)
        for line in range(min(self.size.height - self._head, len(rows) - top)):
            number = top + line
            if old[number] != rows[number] or old_keys[number] != keys[number]:
                self.refresh(Region(0, line + self._head, self._room, 1))

    def _lay_out(self) -> bool:
        """Fit the columns into the width; whether that changed anything."""
        size = Size(self._room, len(self._rows) + self._head)
        if size != self.virtual_size:
            self.virtual_size = size
        return self._fit()

    def _fit(self) -> bool:
        """Widths for the room there is; a scroll bar that came or went has changed it."""
        self._fitted_to = self._room
        return self._widths.fit(self._room - CURSOR_COLUMNS, self._order.by)

    def on_resize(self, _: events.Resize) -> None:
        self._look()
        self._lay_out()
        self._keep_in_view()
        self.refresh()

    # Moving

    def _index(self) -> int:
        """Where the cursor stands, or stood."""
        try:
            return self._keys.index(self._cursor) if self._cursor is not None else 0
        except ValueError:
            return 0

    def _move_to(self, index: int) -> None:
        if not self._rows:
            return
        index = max(0, min(index, len(self._rows) - 1))
        before = self._index()
        self._cursor = self._keys[index]
        self._refresh_row(before)
        self._refresh_row(index)
        self._keep_in_view()
        if before != index:
            self.post_message(self.Moved(self, self.row))

    def _refresh_row(self, index: int) -> None:
        y = index - round(self.scroll_offset.y) + self._head
        if self._head <= y < self.size.height:
            self.refresh(Region(0, y, self._room, 1))

    def _keep_in_view(self) -> None:
        index, top = self._index(), round(self.scroll_offset.y)
        height = self.size.height - self._head
        if height <= 0:
            return
        if index < top:
            self.scroll_to(y=index, animate=False)
        elif index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False)

    def action_move(self, by: int) -> None:
        self._move_to(self._index() + by)

    def action_page(self, by: int) -> None:
        self._move_to(self._index() + by * max(1, self.size.height - 2))

    def action_edge(self, side: int) -> None:
        self._move_to(0 if side < 0 else len(self._rows) - 1)

    def action_open(self) -> None:
        if self.row is not None:
            self.post_message(self.Opened(self, self.row))

    def action_sort(self) -> None:
        """By the next of the columns that are shown; after the last, as given."""
        before = -1 if self._order.by is None else self._order.by
        later = (at for at, width in enumerate(self._widths.shown) if width and at > before)
        self._order = Order(next(later, None))
        self._arrange()
        self.refresh()

    def action_reverse(self) -> None:
        self._order = replace(self._order, reverse=not self._order.reverse)
        self._arrange()
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        index = event.y - self._head + round(self.scroll_offset.y)
        if event.y < self._head or index >= len(self._rows):
            return
        chosen = index == self._index()
        self._move_to(index)
        if chosen:
            self.action_open()

    # Painting

    def render_line(self, y: int) -> Strip:
        width, base = self._room, self.visual_style.rich_style
        if width != self._fitted_to:
            self._fit()
        if y < self._head:
            line = header_line(self.columns, self._widths.shown, self._order, self._marks())
            return strip_of(line, width, base, self.app.theme)
        index = y - self._head + round(self.scroll_offset.y)
        if index >= len(self._rows):
            empty = not self._rows and y == 2 * self._head
            spans = (Span(f"  {self._nothing_shown()}", "quiet"),) if empty else ()
            return strip_of(spans, width, base, self.app.theme)
        row = self._rows[index]
        under = row.key == self._cursor
        drawn_as = (under, self.has_focus, width, tuple(self._widths.shown), self.app.theme)
        known = self._painted.get(row.key)
        if known is not None and known[0] is row and known[1] == drawn_as:
            return known[2]
        style = base + cursor_style(self.app.theme, focused=self.has_focus) if under else base
        line = row_line(self.columns, self._widths.shown, row, self._marks(), under=under)
        strip = strip_of(line, width, style, self.app.theme)
        self._painted[row.key] = (row, drawn_as, strip)
        return strip

    def _nothing_shown(self) -> str:
        if self._filter is not None and self._all:
            return f"nothing matches {self._filter.text!r}; Esc clears the filter"
        return self._nothing

    def on_focus(self) -> None:
        self._refresh_row(self._index())

    def on_blur(self) -> None:
        self._refresh_row(self._index())
