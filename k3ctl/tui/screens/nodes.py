"""Nodes side by side, and one of them in detail."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from k3ctl.tui.figures import celsius, duration_us, share, size, watts
from k3ctl.tui.ink import Line, Span, line, quiet
from k3ctl.tui.marks import Marks
from k3ctl.tui.row_pane import RowPane
from k3ctl.tui.screens.node_detail import node_lines
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.trail import node_clock_mhz, node_power_w, node_temperature_c
from k3ctl.tui.widgets.columns import Column, Row
from k3ctl.tui.widgets.master_detail import MasterDetail
from k3ctl.tui.widgets.row_table import RowTable
from k3d.store.frame import NodeFrame

COLUMNS = (
    Column("name", "NODE", most=24),
    Column("state", "STATE"),
    Column("power_w", "WATTS", right=True, drop=3),
    Column("temperature_c", "TEMP", right=True, drop=2),
    Column("clock_mhz", "CLOCK", right=True, drop=5),
    Column("rss_bytes", "MEMORY", right=True, drop=4),
    Column("busy_share", "BUSY", right=True, drop=7),
    Column("rtt_us", "RTT", right=True, drop=6),
    Column("hop_p50_us", "HOP P50", right=True, drop=4),
    Column("hop_p99_us", "HOP P99", right=True, drop=1),
    Column("slots_used", "SLOTS", right=True, drop=8),
    Column("version", "VERSION", drop=9),
    Column("progress_age_s", "AGE", right=True, drop=2),
)


class NodesPane(RowPane):
    """A table of all nodes; Enter opens one."""

    KIND = "node"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "neighbour(1)", "next node", show=False),
        Binding("N", "neighbour(-1)", "node before", show=False),
    ]
    HELP = """
    Every node as it last reported. A node that has not made progress for two intervals is dimmed,
    after five its state is followed by a question mark. A dash is a sensor that the node does not
    have, or cannot read; the node's own page says why.

    Setting power and clock caps comes with node operations.
    """

    def compose(self) -> ComposeResult:
        table = RowTable(COLUMNS, lambda: self.console.marks, nothing="no node yet", id="nodes")
        yield MasterDetail(table, self._draw_node)

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        frame, marks = snapshot.frame, self.console.marks
        nodes = () if frame is None else frame.nodes
        self.both.table.set_rows(node_row(node, snapshot, marks) for node in nodes)
        self.both.redraw()

    @property
    def node(self) -> NodeFrame | None:
        """The node under the cursor."""
        nodes = () if self.shown.frame is None else self.shown.frame.nodes
        return next((node for node in nodes if node.name == self.key), None)

    def action_neighbour(self, by: int) -> None:
        self.both.table.action_move(by)

    def _draw_node(self, width: int, _height: int) -> list[Line]:
        node = self.node
        if node is None:
            return [line(quiet("no node"))]
        return node_lines(node, self.shown, self.console.trail, self.console.marks, width)


def node_row(node: NodeFrame, snapshot: Snapshot, marks: Marks) -> Row:
    """One node as the table shows it."""
    sensors = node.sensors
    old = snapshot.node_freshness(node)
    age_s = snapshot.node_age_s(node)
    power, cap = node_power_w(node), node_cap_w(node)
    temperature, clock = node_temperature_c(node), node_clock_mhz(node)
    busy = None if sensors is None else sensors.busy_share
    cells: tuple[Line, ...] = (
        line(node.name),
        state_cell(node, snapshot, marks),
        line(watts(power, cap)),
        celsius(temperature, marks),
        line("-" if clock is None else f"{clock:,.0f} MHz"),
        line(size(node.rss_bytes)),
        line(share(busy)),
        line(duration_us(node.rtt_us)),
        line(duration_us(node.hop_p50_us)),
        line(duration_us(node.hop_p99_us)),
        line("-" if node.slots_used is None else f"{node.slots_used:,}/{node.slots or 0:,}"),
        line(quiet(node.version or "-")),
        line(
            quiet("-" if age_s is None else f"{age_s:.1f} s" if age_s < 60 else f"{age_s:,.0f} s")
        ),
    )
    values = (
        node.name, node.state, power, temperature, clock, node.rss_bytes, busy, node.rtt_us,
        node.hop_p50_us, node.hop_p99_us, node.slots_used, node.version, age_s,
    )  # fmt: skip
    return Row(node.name, cells, values, old=old != "fresh")


def state_cell(node: NodeFrame, snapshot: Snapshot, marks: Marks) -> Line:
    """The state a node was last seen in; `?` when that was long ago."""
    freshness = snapshot.node_freshness(node)
    state = marks.state(node.state)
    if freshness == "lost" and node.state != "unknown":
        return line(state, Span(" ?", "warn"))
    return state


def node_cap_w(node: NodeFrame) -> float | None:
    """Of its accelerators together, where each has one."""
    if node.sensors is None or node.sensors.power_w is not None:
        return None
    caps = [each.power_cap_w for each in node.sensors.accelerators]
    known = [cap for cap in caps if cap is not None]
    return sum(known) if known and len(known) == len(caps) else None
