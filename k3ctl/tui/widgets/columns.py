"""Columns of a table: how wide each is, and which give way where they do not all fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from k3ctl.tui.ink import Line, Span, width_of

GAP = 2
LEAST = 4
"""Columns that the widest keeps when even those that always stay have no room."""


@dataclass(frozen=True)
class Column:
    """`drop` 0 always stays. `key` names the value in JSON and CSV. `most` limits the width."""

    key: str
    title: str
    right: bool = False
    drop: int = 0
    most: int = 40


@dataclass(frozen=True)
class Row:
    """One row; `old` dims it. As many cells and values as the table has columns."""

    key: str
    cells: tuple[Line, ...]
    values: tuple[Any, ...]
    old: bool = False


class Widths:
    """Of the columns of one table; those in `shown` are 0 where a column had to go. They only grow
    while rows stay the same, so that columns do not dance."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.shown = [0] * len(columns)
        self._columns = columns
        self._needs = self._titles()

    def _titles(self) -> list[int]:
        return [width_of((Span(column.title),)) for column in self._columns]

    def note(self, rows: Iterable[Row], *, anew: bool) -> None:
        """Make room for the cells of rows; `anew` forgets those that were there."""
        if anew:
            self._needs = self._titles()
        for row in rows:
            for at, cell in enumerate(row.cells):
                wanted = min(width_of(cell), self._columns[at].most)
                self._needs[at] = max(self._needs[at], wanted)

    def fit(self, room: int, marked: int | None) -> bool:
        """Fit them into as many columns of the screen; whether that changed any. The title of the
        one that is `marked` has a mark behind it."""
        needs = list(self._needs)
        if marked is not None:
            needs[marked] = max(needs[marked], self._titles()[marked] + 1)
        widths = fitted(self._columns, needs, room)
        changed = widths != self.shown
        self.shown = widths
        return changed


def fitted(columns: Sequence[Column], needs: Sequence[int], room: int) -> list[int]:
    """Widths of the columns, 0 for those that have to go, highest `drop` first."""
    widths = [min(need, column.most) for need, column in zip(needs, columns, strict=True)]
    for drop in sorted({column.drop for column in columns if column.drop}, reverse=True):
        if _taken(widths) <= room:
            break
        for at, column in enumerate(columns):
            if column.drop == drop:
                widths[at] = 0
    over = _taken(widths) - room
    if over > 0 and widths:  # the widest of those that always stay gives way
        widest = max(range(len(widths)), key=lambda at: widths[at])
        widths[widest] = max(LEAST, widths[widest] - over)
    return widths


def _taken(widths: Sequence[int]) -> int:
    return sum(width + GAP for width in widths if width) - GAP
