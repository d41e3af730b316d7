"""A pane whose heart is a table with a page of each row; the ways through it are the same."""

from __future__ import annotations

from typing import ClassVar

from k3ctl.tui.goto import some_of
from k3ctl.tui.pane import Pane
from k3ctl.tui.widgets.master_detail import MasterDetail
from k3ctl.tui.widgets.row_table import RowTable


class RowPane(Pane):
    """Composes one MasterDetail; `KIND` is what go-to calls its rows."""

    KIND: ClassVar[str]

    @property
    def both(self) -> MasterDetail:
        """The table and its page."""
        return self.query_one(MasterDetail)

    @property
    def key(self) -> str | None:
        """Of the row under the cursor."""
        row = self.both.table.row
        return None if row is None else row.key

    def table(self) -> RowTable | None:
        return self.both.table

    def back(self) -> bool:
        return self.both.leave()

    def focus_first(self) -> None:
        if not self.both.is_open:
            self.both.table.focus()

    def go(self, kind: str, name: str) -> bool:
        if kind != self.KIND or not self.both.table.put_cursor(name):
            return False
        self.both.open()
        return True

    def lacks(self, kind: str, name: str) -> str:
        table = self.both.table
        if table.has(name):
            return f"{kind} {name} is not among what the filter leaves; Esc clears it"
        names = [row.key for row in table.rows]
        there = f"there are {some_of(names)}" if names else "there is none"
        return f"there is no {kind} {name} now; {there}"
