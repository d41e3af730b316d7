"""k3ctl status, which is k3ctl pod status: the state of the pod.

k3ctl.cli.start answers its plainest form, `status --json`, without all this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.pod_status_text import NODES, TIERS, status_lines
from k3ctl.client.quick_get import nothing_runs, quick_status
from k3d.errors import FabricError, HealthCode, K3Error

SCHEMA = "k3ctl.pod-status/1"


@click.command()
@columns_options(NODES, TIERS)
@home_options
@json_option
@click.pass_obj
def status(invocation: Invocation) -> int:
    """Show nodes, tiers, hops and rates of the pod.

    The exit code is the pod's state: 0 healthy, 1 degraded, 3 down, 4 unknown.
    """
    output, home = invocation.output, invocation.home
    try:
        if nothing_runs(home):
            raise FabricError(f"no Station runs in {home}", hint="start the pod: k3ctl pod up")
        document = quick_status(home) or _asked_properly(home)
    except K3Error as error:
        return _without_station(invocation, home, error)
    output.document(SCHEMA, document)
    invocation.listed(
        (NODES, document.get("nodes") or []),
        (TIERS, document.get("tiers") or []),
        otherwise=lambda: status_lines(document, output),
    )
    return HealthCode.of(str(document.get("state")))


def _asked_properly(home: Path) -> dict[str, Any]:
    """The Station's status by the whole client, which says why when there is none."""
    from k3ctl.client.daemon import Daemon

    with Daemon.station_of(home) as station:
        document = station.status()
    del document["schema"]
    return {"home": str(home), **document}


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
    document = {"home": str(home), "pod": None, "state": state, "reason": error.message}
    output.document(SCHEMA, {**document, "nodes": listed})
    words = [f"pod {output.state(state)}: {error.message}"]
    if nodes and output.text_wanted:
        from k3ctl.cli.health import health_lines

        words += ["", *health_lines(nodes)]
    invocation.listed((NODES, listed), (TIERS, []), otherwise=lambda: words)
    if error.hint and output.text_wanted:
        output.note(error.hint)
    return HealthCode.DOWN if down else HealthCode.UNKNOWN
