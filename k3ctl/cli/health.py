"""k3ctl health: whether nodes make progress. The exit code is the worst state."""

from __future__ import annotations

import itertools
from operator import attrgetter
from typing import TYPE_CHECKING

import click

from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.output import state_shown
from k3ctl.cli.reasons import about
from k3ctl.cli.table import Column, Columns, seconds, wrapped
from k3d.errors import HealthCode

if TYPE_CHECKING:
    from k3ctl.client.health import NodeHealth

NODES = Columns(
    "nodes",
    (
        Column("node", attrgetter("node")),
        Column("role", attrgetter("role")),
        Column("state", attrgetter("state"), state_shown),
        Column("reason", attrgetter("reason")),
        Column("pid", attrgetter("pid"), right=True),
        Column("version", attrgetter("version")),
        Column("uptime", attrgetter("uptime_s"), seconds, right=True),
        Column("progress", attrgetter("progress_age_s"), seconds, right=True),
    ),
)


@click.command
@click.argument("node", required=False)
@columns_options(NODES)
@home_options
@json_option
@click.pass_obj
def health(invocation: Invocation, node: str | None) -> int:
    """Say whether a node, or every node, makes progress.

    Exits with the worst state: 0 healthy, 1 degraded, 3 down, 4 unknown.
    """
    from k3ctl.client.health import pod_health, worst

    output, home = invocation.output, invocation.home
    nodes = pod_health(home, node)
    # No node at all: the pod was never brought up here, or taken down.
    state = worst([found.state for found in nodes]) if nodes else "down"
    reason = None if nodes else f"no pod runs in {home}"
    output.document(
        "k3ctl.health/1",
        {"state": state, "reason": reason, "nodes": [found.as_json() for found in nodes]},
    )
    if output.text_wanted:
        shown = health_lines(nodes) if nodes else [f"{output.state(state)}: {reason}"]
        invocation.listed((NODES, nodes), otherwise=lambda: shown)
        if not nodes:
            output.note("start one: k3ctl pod up")
    return HealthCode.of(state)


def health_lines(nodes: list[NodeHealth]) -> list[str]:
    """A table of node states, and why those that are not healthy are not."""
    lines = NODES.lines(nodes, ["node", "state", "pid", "uptime", "progress"])
    reasons = [wrapped(about(node.node, node.reason)) for node in nodes if node.reason]
    return [*lines, *([""] if reasons else []), *itertools.chain(*reasons)]
