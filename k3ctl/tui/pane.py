"""The contract between the console and its panes.

A pane is a widget that fills the body of the console. It is registered in one place,
`k3ctl/tui/panes_list.py`, as a `PaneSpec`; its module is imported when the pane is first opened,
and a pane that was never opened costs nothing. The console then calls it, always in the thread
that draws:

`show(snapshot)`
    Draw this. Called when the pane is opened, with every new frame, and every tick while the last
    frame grows older; never while another pane or a dialog is in front. It runs inside a
    batch_update, takes a few milliseconds, and never touches a socket, a file or a lock. Use
    `Drawing` (lines from a plain function of snapshot and size) and `RowTable` (rows by key); both
    repaint only what changed.
`table()`
    The RowTable that `/`, `c`, `y`, `s` and `o` are about; by default the first one that is shown.
    A pane without a table may override `chosen`, `sheet` and `narrow` instead.
`chosen()`
    What `c` (its id) and `y` (its record, as JSON) copy; by default the row under the cursor.
`sheet()`
    What `s` saves as CSV and JSON; by default the table's rows that are shown.
`narrow(kept)`
    Show only what the filter keeps, None for all; by default the table does.
`back()`
    What Esc does: leave a detail and return True, or return False when there is nothing to leave.
`go(kind, name)`
    Show this place (`:` go-to, a row opened elsewhere) and return True; False when there is no
    such thing. Kinds that a pane opens are named in its PaneSpec.
`lacks(kind, name)`
    Why it has no place that `go` did not find, and which there are: a sentence.
`BINDINGS`, `HELP`
    `?` lists the bindings in force and then HELP, a few sentences. Keys that change something are
    the `deeds` of the PaneSpec instead: they are bound only where the console may write, and
    `console.carry_out` checks again. Their actions say why they cannot be done when they cannot.
`focus_first()`
    Put the focus where typing is meant to go; by default the table.

A pane asks for what is not in a frame with `console.ask(key, call, then)`: `call` runs in a thread
that nothing waits for, one at a time for each key, and `then` (or `failed`) gets what came of it in
the thread that draws. `console.live` is the client of the running Station, None in a replay:
`console.not_live` says so in a sentence.
`console.marks` has the glyphs, `console.trail` ten minutes of figures for sparklines. States are
always drawn with `console.marks.state(...)`: a glyph, a word and an ink. Below 100 columns a pane
shows one thing at a time; `self.wide` tells, and the classes `-wide` and `-tall` are on the screen.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

from textual.binding import Binding
from textual.containers import Vertical

from k3ctl.tui.snapshot import EMPTY, Snapshot
from k3ctl.tui.widgets.row_table import RowTable
from k3d.errors import K3Error

if TYPE_CHECKING:
    from k3ctl.tui.deeds import Deed
    from k3ctl.tui.filter import Filter
    from k3ctl.tui.marks import Marks
    from k3ctl.tui.trail import Trail

WIDE_COLUMNS = 100
TALL_LINES = 32

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class PaneSpec:
    """A pane as the console lists it. `places` are the kinds of go-to targets it opens.

    `deeds` are its keys that change something: `description` is for the foot, `tooltip` for the
    palette, which offers them from every pane. They are here because a pane may not be made yet.
    """

    name: str
    key: str
    title: str
    summary: str
    module: str
    attribute: str
    places: tuple[str, ...] = ()
    deeds: tuple[Binding, ...] = ()

    def make(self) -> Pane:
        """The pane itself; imports its module."""
        return getattr(importlib.import_module(self.module), self.attribute)(id=f"pane-{self.name}")


@dataclass(frozen=True)
class Chosen:
    """The thing under the cursor: what it is called and all that is shown of it."""

    id: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Sheet:
    """A table to be saved: values as JSON and CSV hold them, in base units, None where unknown."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class Console(Protocol):
    """What panes may use of the console."""

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def trail(self) -> Trail: ...
    @property
    def marks(self) -> Marks: ...
    @property
    def live(self) -> Any: ...
    @property
    def not_live(self) -> str | None:
        """Why no Station can be asked or changed, and what to do; None where one can."""
        ...

    @property
    def home(self) -> Path | None: ...
    @property
    def may_write(self) -> bool: ...

    def ask(
        self,
        key: str,
        call: Callable[[], Answer],
        then: Callable[[Answer], None],
        failed: Callable[[K3Error], None] | None = None,
    ) -> bool:
        """Run `call` in a thread; False when one of this key is still open. Without `failed` an
        error is shown as a message."""
        ...

    def carry_out(self, deed: Deed, done: Callable[[], None] | None = None) -> None:
        """Ask the person, then do it in a thread and say what came of it."""
        ...

    def say(self, sentence: str, severity: str = "note") -> None:
        """A sentence that goes away by itself."""
        ...

    def go_to(self, kind: str, name: str) -> bool:
        """Open the pane that shows a place."""
        ...


class Pane(Vertical, can_focus=True):
    """A pane; see the module's docstring."""

    DEFAULT_CSS = """
    Pane { height: 1fr; width: 1fr; padding: 0 1; }
    """
    HELP: ClassVar[str] = ""

    shown: Snapshot = EMPTY
    """The snapshot of the last `show`."""

    @property
    def console(self) -> Console:
        return cast(Console, self.app)

    @property
    def wide(self) -> bool:
        """Whether two things fit beside each other."""
        return self.app.size.width >= WIDE_COLUMNS

    @property
    def tall(self) -> bool:
        return self.app.size.height >= TALL_LINES

    def show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot. A pane calls this first."""
        self.shown = snapshot

    def table(self) -> RowTable | None:
        return next((table for table in self.query(RowTable) if self._displays(table)), None)

    def _displays(self, table: RowTable) -> bool:
        """Whether nothing between the pane and the table hides it."""
        for node in table.ancestors_with_self:
            if node is self:
                break
            if not node.display:
                return False
        return True

    def chosen(self) -> Chosen | None:
        table = self.table()
        row = None if table is None else table.row
        if table is None or row is None:
            return None
        return Chosen(row.key, table.record(row))

    def sheet(self) -> Sheet | None:
        table = self.table()
        if table is None:
            return None
        columns = tuple(column.key for column in table.columns)
        rows = tuple(tuple(table.record(row).values()) for row in table.rows)
        return Sheet((self.id or "pane").removeprefix("pane-"), columns, rows)

    def narrow(self, kept: Filter | None) -> None:
        table = self.table()
        if table is not None:
            table.narrow(kept)

    def back(self) -> bool:
        return False

    def go(self, kind: str, name: str) -> bool:
        return False

    def lacks(self, kind: str, name: str) -> str:
        return f"there is no {kind} {name} now"

    def focus_first(self) -> None:
        table = self.table()
        if table is not None and self._displays(table):
            table.focus()
        else:
            self.focus()

    def arm(self, deeds: Sequence[Binding]) -> None:
        """Bind what changes the pod; the console calls it where that is allowed."""
        for deed in deeds:
            self._bindings.bind(
                deed.key, deed.action, deed.description, show=deed.show,
                key_display=deed.key_display or deed.key,
            )  # fmt: skip
