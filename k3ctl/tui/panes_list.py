"""Every pane of the console, in the order of its keys. The one place where panes are registered."""

from __future__ import annotations

from k3ctl.tui.pane import PaneSpec

PANES: tuple[PaneSpec, ...] = (
    PaneSpec(
        "overview", "1", "Overview", "The pod at a glance, and what needs attention.",
        "k3ctl.tui.screens.overview", "OverviewPane",
    ),
    PaneSpec(
        "nodes", "5", "Nodes", "Every node: clocks, watts, temperatures, memory, links, versions.",
        "k3ctl.tui.screens.nodes", "NodesPane", places=("node",),
    ),
    PaneSpec(
        "lanes", "6", "Lanes", "Requests: waiting, reading their prompt, decoding.",
        "k3ctl.tui.screens.lanes", "LanesPane", places=("lane",),
    ),
)  # fmt: skip
