"""The placement pane: the map in force beside a candidate; dry run, swap, rollback, abort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from k3ctl.client.candidates import Choice, choices
from k3ctl.tui.ink import Line, Span, dimmed, flowed, line, quiet, wrap
from k3ctl.tui.pane import Pane
from k3ctl.tui.screens import placement_view as view
from k3ctl.tui.screens.placement_changes import PlacementChanges, Plan
from k3ctl.tui.screens.placement_comparing import Comparing
from k3ctl.tui.screens.placement_rows import COLUMNS, candidate_row
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.detail import Detail
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.row_table import RowTable
from k3d.errors import K3Error

ROOMY = 20
"""Lines from which on a sentence at the foot may take more than one."""


class PlacementPane(Pane):
    """Candidates in a table; the one that was opened is compared with the map in force."""

    DEFAULT_CSS = """
    PlacementPane #placement-top { margin-bottom: 1; }
    PlacementPane Horizontal { height: 1fr; }
    PlacementPane RowTable { width: 46; margin-right: 2; }
    PlacementPane #placement-side { width: 1fr; }
    PlacementPane.-one RowTable { width: 1fr; margin-right: 0; }
    PlacementPane.-one #placement-side { display: none; }
    PlacementPane.-one.-side RowTable { display: none; }
    PlacementPane.-one.-side #placement-side { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "dry_run", "dry run"),
        Binding("a", "weigh_all", "compare all"),
    ]
    HELP: ClassVar[str] = (
        "Enter compares a policy or a map with the map in force: experts, hits and time of each "
        "tier, and what a token's experts would take. The time is modelled: a trace is replayed "
        "with the costs that are named below it. The trace is the one recorded last (k3ctl trace "
        "record live.k3trace), else the newest in the home.\n\n"
        "d shows exactly what a swap would do and does nothing. S swaps to the candidate under the "
        "cursor, R goes back to the map before the last swap, A ends a swap before it is in force; "
        "each shows its k3ctl line first."
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._choices: list[Choice] | None = None
        self._document: Mapping[str, Any] | None = None
        self._comparing = Comparing(self, self._redraw)
        self._changes = PlacementChanges(self, self._show_plan, self._show_last)
        self._open: str | None = None
        self._plan: tuple[str, Plan] | None = None

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw_top, fit=True, id="placement-top")
        with Horizontal():
            yield RowTable(COLUMNS, lambda: self.console.marks, id="placement-choices",
                           nothing="no policies are known")  # fmt: skip
            yield Detail(self._draw_side, id="placement-side")
        yield Drawing(self._draw_foot, fit=True, id="placement-foot")

    # What is shown

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        self.set_class(not self.wide, "-one")
        frame, live, home = snapshot.frame, self.console.live, self.console.home
        if frame is not None:
            self._comparing.beside(frame.epoch)
        if live is not None:
            self.console.ask("placement", live.placement, self._take, self._no_document)
        if home is not None and self._choices is None:
            self.console.ask("candidates", lambda: choices(home), self._take_choices)
        self._redraw()

    def _take(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._redraw()

    def _no_document(self, _error: K3Error) -> None:
        """The frames say already that nobody answers; what was known last stays."""

    def _take_choices(self, found: list[Choice]) -> None:
        self._choices = found
        self._redraw()

    def _redraw(self) -> None:
        if not self.is_attached:
            return
        for name in ("#placement-top", "#placement-foot"):
            self.query_one(name, Drawing).redraw()
        self.query_one(RowTable).set_rows(
            candidate_row(choice, self._comparing) for choice in self._choices or ()
        )
        self.query_one(Detail).redraw()

    def _draw_top(self, width: int, _: int) -> Sequence[Line]:
        lines = view.top_lines(self.shown.frame, self._document, self.console.marks, width)
        return lines if self.shown.freshness == "fresh" else [dimmed(each) for each in lines]

    def _draw_foot(self, width: int, _: int) -> Sequence[Line]:
        """What is lacking for figures, and the keys that change something."""
        lacking = self._comparing.no_trace
        most = 3 if self.app.size.height >= ROOMY else 1
        lines = [] if lacking is None else wrap(lacking, width, "warn", indent=2)[:most]
        if not self.console.may_write:
            return lines
        name = self._candidate()
        to = "" if name is None else f" to {Path(name).name}"
        keys = (("S", f"swap{to}"), ("R", "roll back"), ("A", "abort"))
        deeds = (line(Span(key, "accent"), quiet(f" {does}")) for key, does in keys)
        return [*lines, *flowed(tuple(deeds), width)]

    @on(RowTable.Moved)
    def _moved(self) -> None:
        self.query_one("#placement-foot", Drawing).redraw()

    def _draw_side(self, width: int, _: int) -> Sequence[Line]:
        marks, name = self.console.marks, self._open
        if self._plan is not None:
            title, plan = self._plan
            return view.dry_run_lines(plan, title, marks, width)
        if name is None:
            last = view.last_lines(self._document, marks, width)
            return [*last, line(quiet("Enter compares a candidate with the map in force"))]
        if name in self._comparing.compared:
            compared = self._comparing.compared[name]
            return view.comparison_lines(compared, marks, width, maps=self.tall)
        refused = self._comparing.refused.get(name)
        if refused is not None:
            return wrap(refused, width, "warn", indent=2)
        return wrap(f"planning {Path(name).name}", width, "quiet", indent=2)

    # What is opened

    @on(RowTable.Opened)
    def _opened(self, event: RowTable.Opened) -> None:
        self._show_side(event.row.key)
        self._comparing.begin([event.row.key])

    def _show_side(self, name: str | None) -> None:
        self._open, self._plan = name, None
        self.add_class("-side")
        detail = self.query_one(Detail)
        detail.restart()
        if not self.wide:
            detail.focus()
        self._redraw()

    def _show_plan(self, name: str | None, title: str, plan: Plan) -> None:
        self._show_side(name)
        self._plan = (title, plan)
        self._redraw()

    def _show_last(self) -> None:
        """After a change: the swap above, and how the last one went."""
        self._open, self._plan = None, None
        self._redraw()

    # Comparing and changing

    def action_weigh_all(self) -> None:
        found = self._choices or ()
        self._comparing.begin([choice.name for choice in found if choice.reason is None])

    def _candidate(self) -> str | None:
        """The one that is meant: what is opened below 100 columns, else under the cursor."""
        row = self.query_one(RowTable).row
        if not self.wide and self.has_class("-side") and self._open is not None:
            return self._open
        return None if row is None else row.key

    def _argument(self, name: str | None) -> str | None:
        """What swaps name a candidate by; None for a map that still has to be planned."""
        if not any(choice.name == name and choice.traced for choice in self._choices or ()):
            return name
        compared = None if name is None else self._comparing.compared.get(name)
        return None if compared is None else compared.candidate.argument

    def action_dry_run(self) -> None:
        name = self._candidate()
        self._changes.dry_run(name, self._argument(name))

    def action_swap(self) -> None:
        name = self._candidate()
        self._changes.swap(name, self._argument(name))

    def action_rollback(self) -> None:
        self._changes.roll_back()

    def action_abort(self) -> None:
        frame = self.shown.frame
        self._changes.abort(None if frame is None else frame.swap)

    # Keys

    def focus_first(self) -> None:
        inside = self.has_class("-one", "-side")
        self.query_one(Detail if inside else RowTable).focus()

    def back(self) -> bool:
        if self._plan is not None:
            self._plan = None
            self._redraw()
            if self._open in self._comparing.compared:
                return True
        if self.has_class("-side"):
            self.remove_class("-side")
            self._open = None
            self.query_one(RowTable).focus()
            self._redraw()
            return True
        return False
