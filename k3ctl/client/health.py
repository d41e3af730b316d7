"""Health of nodes, from the progress they make and not from a port that answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from k3ctl.client.daemon import Daemon
from k3ctl.client.pod_run import read_pod_run
from k3ctl.client.processes import process_state
from k3d.errors import K3Error, NotFound, TimedOut
from k3d.store.run_file import RunFile, RunFiles, read_run_files
from k3d.store.secret import read_secret

ANSWER_S = 2.0
# A daemon's loop turns several times a second even when idle.
SLOW_PROGRESS_S = 5.0
STALLED_S = 30.0

# From best to worst: what cannot be told is worse than what half works, a dead node worst.
_BADNESS = ("healthy", "degraded", "unknown", "down")


@dataclass(frozen=True)
class NodeHealth:
    """One node: its state, and why when it is not healthy. Ages in seconds, None if not known."""

    node: str
    role: str
    state: str
    reason: str | None = None
    pid: int | None = None
    version: str | None = None
    uptime_s: float | None = None
    progress_age_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StationWord:
    """What the Station says of a node. `refused`: it will not serve until somebody mends what
    `reason` names."""

    state: str
    reason: str | None
    refused: bool


def worst(states: list[str]) -> str:
    """The worst of some states; unknown for none."""
    return max(states, key=_BADNESS.index, default="unknown")


def pod_health(home: Path, only: str | None = None) -> list[NodeHealth]:
    """Every node of the pod of a home, or the one named.

    A node is as bad as the worse of what it says and what the Station says of it; one whose run
    file cannot be read is unknown. Raises NotFound for a name that is not in the pod.
    """
    files = read_run_files(home)
    runs = {run.name: run for run in files.found}
    expected = _expected(home, files)
    if only is not None and only not in expected:
        raise NotFound(
            f"the pod of {home} has no node {only!r}",
            hint=f"its nodes: {', '.join(expected) or 'none; start it with k3ctl pod up'}",
        )
    if not expected:
        return []
    secret = read_secret(home)
    with ThreadPoolExecutor(max_workers=min(16, len(expected) + 1)) as pool:
        view = pool.submit(station_view, files.station, secret)

        def look(name: str) -> NodeHealth:
            if name in files.damaged:
                return NodeHealth(name, expected[name], "unknown", files.damaged[name].message)
            return node_health(name, expected[name], runs.get(name), secret)

        found = list(pool.map(look, expected))
    joined = [_joined(node, view.result().get(node.node)) for node in found]
    return [node for node in joined if only in (None, node.node)]


def node_health(name: str, role: str, run: RunFile | None, secret: bytes) -> NodeHealth:
    """One node by its own word, checked against its process."""
    if run is None:
        return NodeHealth(name, role, "down", "it is not running")
    if not run.alive():
        return NodeHealth(name, role, "down", f"its process {run.pid} has ended", pid=run.pid)
    known = NodeHealth(name, role, "unknown", pid=run.pid, version=run.version)
    if process_state(run.pid) == "T":
        return replace(known, state="down", reason=f"its process {run.pid} is stopped")
    try:
        with Daemon(run, secret, timeout_s=ANSWER_S) as daemon:
            answer = daemon.health()
    except TimedOut:
        return replace(known, state="down", reason=f"it has not answered for {ANSWER_S:g} s")
    except K3Error as error:
        lost = error.retryable
        return replace(known, state="down" if lost else "unknown", reason=error.message)
    return _judged(known, answer)


def _judged(known: NodeHealth, answer: dict[str, Any]) -> NodeHealth:
    """What a node says of itself, made worse where its loop makes no progress."""
    said = str(answer.get("state"))
    age = answer.get("progress_age_s")
    node = replace(
        known,
        state=said if said in _BADNESS else "unknown",
        reason=answer.get("reason"),
        version=answer.get("version"),
        uptime_s=answer.get("uptime_s"),
        progress_age_s=age,
    )
    if not isinstance(age, int | float):
        return _worsened(node, "unknown", "it does not say when it last made progress")
    if age > STALLED_S:
        return _worsened(node, "down", f"stalled: no progress for {age:.0f} s")
    if age > SLOW_PROGRESS_S:
        return _worsened(node, "degraded", f"no progress for {age:.0f} s")
    return node


def _joined(node: NodeHealth, said: StationWord | None) -> NodeHealth:
    if said is None:
        return node
    return _worsened(node, said.state, f"the Station says: {said.reason or said.state}")


def _worsened(node: NodeHealth, state: str, reason: str) -> NodeHealth:
    """The node with the given state if that is worse than its own."""
    if state not in _BADNESS or _BADNESS.index(state) <= _BADNESS.index(node.state):
        return node
    return replace(node, state=state, reason=reason)


def station_view(station: RunFile | None, secret: bytes) -> dict[str, StationWord]:
    """What the Station says of each node; empty when it says nothing or does not run."""
    if station is None or process_state(station.pid) == "T":
        return {}
    try:
        with Daemon(station, secret, timeout_s=ANSWER_S) as daemon:
            nodes = daemon.status().get("nodes", [])
    except K3Error:
        return {}
    return {
        str(node.get("name")): StationWord(
            str(node.get("state")), node.get("reason"), node.get("link") == "refused"
        )
        for node in nodes
        if isinstance(node, dict)
    }


def _expected(home: Path, files: RunFiles) -> dict[str, str]:
    """Name and role of each node that should run, the Station first."""
    run = read_pod_run(home)
    if run is None:
        damaged = {name: "station" if name == "station" else "spark" for name in files.damaged}
        return {found.name: found.role for found in files.found} | damaged
    nodes = sorted(run.nodes, key=lambda node: node.role != "station")
    return {node.name: node.role for node in nodes}
