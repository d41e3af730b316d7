"""The lines of a table: its titles, and its rows in an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from k3ctl.tui.ink import Line, Span, dimmed, pad
from k3ctl.tui.marks import Marks
from k3ctl.tui.widgets.columns import GAP, Column, Row

CURSOR_COLUMNS = 2


@dataclass(frozen=True)
class Order:
    """What rows are sorted by: the number of a column, None as they were given."""

    by: int | None = None
    reverse: bool = False

    def sort(self, rows: list[Row]) -> list[Row]:
        """Numbers, then texts; what is not known stays at the end either way."""
        by = self.by
        if by is None:
            return rows
        known = [row for row in rows if row.values[by] is not None]
        unknown = [row for row in rows if row.values[by] is None]
        numbers = all(isinstance(row.values[by], (int, float)) for row in known)
        known.sort(
            key=lambda row: row.values[by] if numbers else str(row.values[by]),
            reverse=self.reverse,
        )
        return known + unknown


def header_line(
    columns: Sequence[Column], widths: Sequence[int], order: Order, marks: Marks
) -> Line:
    """Titles over their columns, with a mark at the one that rows are sorted by."""
    cells: list[Span] = []
    for at, (column, width) in enumerate(zip(columns, widths, strict=True)):
        if not width:
            continue
        sorted_by = at == order.by
        mark = (marks.down if order.reverse else marks.up) if sorted_by else ""
        title = Span(column.title + mark, "accent" if sorted_by else "quiet")
        cells.append(Span(" " * (GAP if cells else CURSOR_COLUMNS)))
        cells += pad((title,), width, right=column.right, mark=marks.more)
    return tuple(cells)


def row_line(
    columns: Sequence[Column], widths: Sequence[int], row: Row, marks: Marks, *, under: bool
) -> Line:
    """A row; `under` the cursor it begins with its mark."""
    cells: list[Span] = []
    for column, cell, width in zip(columns, row.cells, widths, strict=True):
        if width:
            shown = dimmed(cell) if row.old else cell
            mark = f"{marks.cursor} " if under else " " * CURSOR_COLUMNS
            cells.append(Span(" " * GAP) if cells else Span(mark, "accent"))
            cells += pad(shown, width, right=column.right, mark=marks.more)
    return tuple(cells)
