"""k3ctl health: whether nodes make progress. The exit code is the worst state."""

from __future__ import annotations

import itertools

import click

from k3ctl.cli.options import Invocation, home_options, json_option
from k3ctl.cli.output import Output
from k3ctl.cli.reasons import about
from k3ctl.cli.table import seconds, table, wrapped
from k3ctl.client.health import NodeHealth, health_code, pod_health, worst


@click.command
@click.argument("node", required=False)
@home_options
@json_option
@click.pass_obj
def health(invocation: Invocation, node: str | None) -> int:
    """Say whether a node, or every node, makes progress.

    Exits with the worst state: 0 healthy, 1 degraded, 3 down, 4 unknown.
    """
    output, home = invocation.output, invocation.home
    nodes = pod_health(home, node)
    # No node at all: the pod was never brought up here, or taken down.
    state = worst([found.state for found in nodes]) if nodes else "down"
    reason = None if nodes else f"no pod runs in {home}"
    output.document(
        "k3ctl.health/1",
        {"state": state, "reason": reason, "nodes": [found.as_json() for found in nodes]},
    )
    if nodes:
        output.lines(health_lines(nodes, output))
    else:
        output.text(f"{output.state(state)}: {reason}")
        output.note("start one: k3ctl pod up")
    return health_code(state)


def health_lines(nodes: list[NodeHealth], output: Output) -> list[str]:
    """A table of node states, and why those that are not healthy are not."""
    rows = [
        [
            node.node,
            output.state(node.state),
            "-" if node.pid is None else str(node.pid),
            seconds(node.uptime_s),
            seconds(node.progress_age_s),
        ]
        for node in nodes
    ]
    lines = table(["NODE", "STATE", "PID", "UPTIME", "PROGRESS"], rows, right="  rrr")
    reasons = [wrapped(about(node.node, node.reason)) for node in nodes if node.reason]
    return [*lines, *([""] if reasons else []), *itertools.chain(*reasons)]
