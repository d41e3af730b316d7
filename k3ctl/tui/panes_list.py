"""Every pane of the console, in the order of its keys. The one place where panes are registered."""

from __future__ import annotations

from textual.binding import Binding

from k3ctl.tui.pane import PaneSpec

PANES: tuple[PaneSpec, ...] = (
    PaneSpec(
        "overview", "1", "Overview", "The pod at a glance, and what needs attention.",
        "k3ctl.tui.screens.overview", "OverviewPane",
    ),
    PaneSpec(
        "tiers", "2", "Tiers", "Each tier's share and time; every expert on one map.",
        "k3ctl.tui.screens.tiers", "TiersPane", places=("tier", "expert"),
    ),
    PaneSpec(
        "placement", "3", "Placement", "The map in force beside a candidate; swap and roll back.",
        "k3ctl.tui.screens.placement", "PlacementPane",
        deeds=(
            Binding("S", "swap", "swap", tooltip="Swap to the candidate that is chosen"),
            Binding("R", "rollback", "roll back", tooltip="Roll back the last swap"),
            Binding("A", "abort", "abort", tooltip="Abort the swap that is under way"),
        ),
    ),
    PaneSpec(
        "banks", "4", "Banks", "Banks of each node, and work on them as it goes.",
        "k3ctl.tui.screens.banks", "BanksPane",
        deeds=(
            Binding("V", "verify", "verify", tooltip="Verify every bank"),
            Binding("B", "scrub", "scrub", tooltip="Scrub the banks' share that is due"),
        ),
    ),
    PaneSpec(
        "nodes", "5", "Nodes", "Every node: clocks, watts, temperatures, memory, links, versions.",
        "k3ctl.tui.screens.nodes", "NodesPane", places=("node",),
    ),
    PaneSpec(
        "lanes", "6", "Lanes", "Requests: waiting, reading their prompt, decoding.",
        "k3ctl.tui.screens.lanes", "LanesPane", places=("lane",),
        deeds=(Binding("x", "cancel", "cancel request", tooltip="Cancel the request chosen"),),
    ),
    PaneSpec(
        "events", "7", "Events", "What happened, and what the daemons say.",
        "k3ctl.tui.screens.events", "EventsPane",
    ),
    PaneSpec(
        "chat", "8", "Chat", "Ask the model, and see how it decodes.",
        "k3ctl.tui.screens.chat", "ChatPane",
    ),
)  # fmt: skip
