"""The pod at a glance."""

from __future__ import annotations

from textual.app import ComposeResult

from k3ctl.tui.ink import Line, line, quiet
from k3ctl.tui.pane import Pane
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.drawing import Drawing


class OverviewPane(Pane):
    """Figures, map, chart and what needs attention."""

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw, id="overview")

    def show(self, snapshot: Snapshot) -> None:
        self.shown = snapshot
        self.query_one("#overview", Drawing).redraw()

    def _draw(self, width: int, height: int) -> list[Line]:
        frame = self.shown.frame
        return [] if frame is None else [line(quiet(f"{len(frame.nodes)} nodes"))]
