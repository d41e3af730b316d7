"""k3ctl status, which is k3ctl pod status: the state of the pod. It starts cold in cron jobs and
prompts, so what it needs is imported where it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.client.quick_get import nothing_runs, quick_get
from k3d.errors import FabricError, HealthCode, K3Error

SCHEMA = "k3ctl.pod-status/1"


def tables() -> Any:
    from k3ctl.cli.pod_status_text import NODES, TIERS

    return NODES, TIERS


@click.command()
@columns_options(tables)
@home_options
@json_option
@click.pass_obj
def status(invocation: Invocation) -> int:
    """Show nodes, tiers, hops and rates of the pod.

    The exit code is the pod's state: 0 healthy, 1 degraded, 3 down, 4 unknown.
    """
    output, home = invocation.output, invocation.home
    try:
        document = quick_get(home, "/status", "k3d.status/1") or _asked_properly(home)
    except K3Error as error:
        return _without_station(invocation, home, error)
    del document["schema"]
    output.document(SCHEMA, {"home": str(home), **document})
    if output.text_wanted:
        from k3ctl.cli.pod_status_text import NODES, TIERS, status_lines

        invocation.listed(
            (NODES, document.get("nodes") or []),
            (TIERS, document.get("tiers") or []),
            otherwise=lambda: status_lines(document, output),
        )
    return HealthCode.of(str(document.get("state")))


def _asked_properly(home: Path) -> dict[str, Any]:
    """The Station's status by the whole client, which says why when there is none."""
    if nothing_runs(home):
        raise FabricError(f"no Station runs in {home}", hint="start the pod: k3ctl pod up")
    from k3ctl.client.daemon import Daemon

    with Daemon.station_of(home) as station:
        return station.status()


def _without_station(invocation: Invocation, home: Path, error: K3Error) -> int:
    """The state of a pod whose Station does not answer: what its nodes say for themselves."""
    nodes = []
    if error.retryable and not nothing_runs(home):
        from k3ctl.client.health import pod_health

        nodes = pod_health(home)
    stations = [node.state for node in nodes if node.role == "station"]
    down = isinstance(error, FabricError) or "down" in stations
    state = "down" if down else "unknown"
    listed = [
        {"name": node.node, "role": node.role, "state": node.state, "reason": node.reason}
        for node in nodes
    ]
    output = invocation.output
    output.document(
        SCHEMA,
        {
            "home": str(home),
            "pod": None,
            "state": state,
            "reason": error.message,
            "nodes": listed,
        },
    )
    if output.text_wanted:
        from k3ctl.cli.health import health_lines
        from k3ctl.cli.pod_status_text import NODES, TIERS

        words = [f"pod {output.state(state)}: {error.message}"]
        words += ["", *health_lines(nodes)] if nodes else []
        invocation.listed((NODES, listed), (TIERS, []), otherwise=lambda: words)
        if error.hint:
            output.note(error.hint)
    return HealthCode.DOWN if down else HealthCode.UNKNOWN
