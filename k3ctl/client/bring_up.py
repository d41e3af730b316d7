"""Bringing a pod up: start the daemons that are missing and wait until they serve."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from k3ctl.client.another_pod import refuse_another
from k3ctl.client.daemon_log import last_words
from k3ctl.client.health import StationWord, node_health, station_view
from k3ctl.client.pod_plan import PodOptions, PodPlan
from k3ctl.client.pod_run import PodRun
from k3ctl.client.processes import Child, find_daemons, start_daemon
from k3d.errors import ExitCode, K3Error, Refused
from k3d.placement.pod import Node
from k3d.placement.policy_files import find_policy
from k3d.store.lock import FileLock
from k3d.store.paths import run_directory
from k3d.store.run_file import log_path, read_run_file, read_run_files, run_file_path
from k3d.store.secret import read_secret

POLL_S = 0.1
REFUSED_S = 3.0
"""How long a Station that ran before may repeat a refusal of a spark that is new: it asks again
every two seconds."""


@dataclass(frozen=True)
class Outcome:
    """What became of one node: "ready", "running", "started", "failed" or "late"."""

    node: str
    role: str
    outcome: str
    reason: str | None = None
    pid: int | None = None

    @property
    def well(self) -> bool:
        return self.outcome in ("ready", "running", "started")


@dataclass
class _Starting:
    """A node on its way up. `process` is None for one that another command started."""

    node: Node
    process: Child | None
    log_offset: int
    refused_s: float | None = None
    """When the Station was first heard to refuse it, on the monotonic clock."""


def bring_up(
    home: Path,
    plan: PodPlan,
    options: PodOptions,
    *,
    wait: bool,
    deadline_s: float,
    lock_wait_s: float = 0.0,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Start what is missing of a pod on this machine; what became of each node, in order.

    `progress` hears of every node as soon as its outcome is known. A pod that runs already is
    left alone. Raises Refused when another pod, or this one with other options, runs here, and
    the errors of the secret, of ports in use and of locks.
    """
    away = [node.name for node in plan.description.nodes if _elsewhere(plan, node)]
    if away:
        raise Refused(
            f"{', '.join(away)} of pod {plan.description.name} is on another machine",
            hint="start each there with: k3d spark --pod FILE --name NAME (or k3d station); "
            "here, check with --dry-run",
        )
    secret = read_secret(home)
    lock = run_directory(home) / "pod.lock"
    with FileLock(lock, f"the pod of {home}", "k3ctl pod up", lock_wait_s):
        run = PodRun.of(plan.description, plan.path)
        refuse_another(home, run, plan.description)
        nodes = [plan.description.node(node.name) for node in run.nodes]
        # Sparks first: the Station finds them listening when it has read its checkpoint.
        nodes.sort(key=lambda node: node.role == "station")
        running = {node.name for node in nodes if _running(home, node)}
        for node in nodes:
            if node.name not in running:
                _require_free_ports(node)
        run.write(home)
        starting = []
        for node in nodes:
            if node.name in running:
                starting.append(_Starting(node, None, 0))
            else:
                starting.append(_start(home, plan, options, node))
        if not wait:
            return [_left_starting(start) for start in starting]
        return _wait(home, starting, secret, time.monotonic() + deadline_s, progress)


def exit_code(outcomes: list[Outcome]) -> ExitCode:
    """0 when every node is well, 4 when the Station is late, 1 when it failed, else 6."""
    station = next(outcome for outcome in outcomes if outcome.role == "station")
    if all(outcome.well for outcome in outcomes):
        return ExitCode.OK
    if station.outcome == "late":
        return ExitCode.TIMEOUT
    return ExitCode.PARTIAL if station.well else ExitCode.FAILED


def _elsewhere(plan: PodPlan, node: Node) -> bool:
    under_inproc = node.role == "spark" and plan.description.transport == "inproc"
    return not under_inproc and not plan.starts_here(node)


def _running(home: Path, node: Node) -> bool:
    """Whether the node's daemon runs, with its run file or about to write it."""
    found = read_run_file(home, node.name)
    if found is not None and found.alive():
        return True
    run_file_path(home, node.name).unlink(missing_ok=True)
    return any(
        daemon.role == node.role and (node.role == "station" or daemon.name == node.name)
        for daemon in find_daemons(home)
    )


def _require_free_ports(node: Node) -> None:
    for port in (node.http_port, node.fabric_port):
        if port == 0:
            continue
        family = socket.AF_INET6 if ":" in node.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((node.host, port))
            except OSError as error:
                raise K3Error(
                    f"{node.name} cannot listen on {node.host}:{port}: {error.strerror}",
                    hint=f"see who has it: ss -ltnp 'sport = :{port}'; or use another port",
                ) from error


def _start(home: Path, plan: PodPlan, options: PodOptions, node: Node) -> _Starting:
    log = log_path(home, node.name)
    offset = log.stat().st_size if log.exists() else 0
    arguments = daemon_arguments(home, plan, options, node)
    return _Starting(node, start_daemon(home, node.name, arguments), offset)


def daemon_arguments(home: Path, plan: PodPlan, options: PodOptions, node: Node) -> list[str]:
    """The arguments of k3d for a node."""
    arguments = [node.role, "--home", str(home), "--pod", str(plan.path)]
    if node.role == "spark":
        arguments += ["--name", node.name]
    if options.transport is not None:
        arguments += ["--transport", options.transport]
    if node.role == "station":
        if options.placement is not None:
            policy = find_policy("placement", options.placement, home).resolve()
            arguments += ["--placement", str(policy)]
        if options.dtype is not None:
            arguments += ["--dtype", options.dtype]
        if options.chunk is not None:
            arguments += ["--chunk", str(options.chunk)]
    return arguments


def _left_starting(start: _Starting) -> Outcome:
    if start.process is None:
        return Outcome(start.node.name, start.node.role, "running")
    return Outcome(start.node.name, start.node.role, "started", pid=start.process.pid)


def _wait(
    home: Path,
    starting: list[_Starting],
    secret: bytes,
    deadline: float,
    progress: Callable[[Outcome], None] | None,
) -> list[Outcome]:
    """Wait until each node serves, has ended, is refused, or the deadline passes."""
    outcomes: dict[str, Outcome] = {}
    while True:
        late = time.monotonic() >= deadline
        view = station_view(read_run_files(home).station, secret)
        for start in starting:
            if start.node.name not in outcomes:
                lost = any(not outcome.well for outcome in outcomes.values())
                outcome = _ended(home, start)
                if outcome is None and _refused(start, starting, view):
                    outcome = _bad(start, "failed", _refusal(start, starting, view))
                if outcome is None:
                    outcome = _observe(home, start, secret, view, late, lost)
                if outcome is not None:
                    outcomes[start.node.name] = outcome
                    if progress is not None:
                        progress(outcome)
        if len(outcomes) == len(starting):
            return [outcomes[start.node.name] for start in starting]
        time.sleep(POLL_S)


def _ended(home: Path, start: _Starting) -> Outcome | None:
    """The outcome of a node whose process has ended."""
    node = start.node
    if start.process is not None and start.process.ended():
        words = last_words(log_path(home, node.name), start.log_offset)
        reason = words or f"it ended with exit code {start.process.exit_code}"
        return _bad(start, "failed", reason, start.process.pid)
    if start.process is None and not _running(home, node):
        return _bad(start, "failed", "it ended while it was waited for")
    return None


def _refused(start: _Starting, starting: list[_Starting], view: dict[str, StationWord]) -> bool:
    """Whether the Station refuses a node for good."""
    if _refusal(start, starting, view) is None:
        start.refused_s = None
        return False
    now = time.monotonic()
    start.refused_s = now if start.refused_s is None else start.refused_s
    # A Station started by this command has met no other spark than the one that is here.
    new_station = any(s.node.role == "station" and s.process is not None for s in starting)
    return new_station or now - start.refused_s >= REFUSED_S


def _refusal(
    start: _Starting, starting: list[_Starting], view: dict[str, StationWord]
) -> str | None:
    """Why the Station refuses a spark; of itself, why it refuses one inside its own process."""
    names = [start.node.name]
    if start.node.role == "station":
        apart = {other.node.name for other in starting}
        names = [name for name in view if name not in apart]
    words = (view[name] for name in names if name in view and view[name].refused)
    return next((word.reason or "it is refused" for word in words), None)


def _observe(
    home: Path,
    start: _Starting,
    secret: bytes,
    view: dict[str, StationWord],
    late: bool,
    one_lost: bool,
) -> Outcome | None:
    """The outcome of a node that runs, if it has one yet. With another node lost, degraded is as
    good as it gets: a Station without that spark, or sparks without a Station."""
    node = start.node
    run = read_run_file(home, node.name)
    if run is None:
        state, reason, pid = "down", "it has not said where it listens", None
    else:
        health = node_health(node.name, node.role, run, secret)
        state, reason, pid = health.state, health.reason, health.pid
    if state == "healthy" or (state == "degraded" and one_lost):
        word = "running" if start.process is None else "ready"
        return Outcome(node.name, node.role, word, reason, pid)
    if state == "unknown":
        # Another secret, another version, another program: waiting changes none of them.
        return _bad(start, "failed", reason, pid)
    if late:
        said = view.get(node.name)
        reason = said.reason if said is not None and said.reason else reason
        return _bad(start, "late", f"not ready yet: {reason}", pid)
    return None


def _bad(start: _Starting, outcome: str, reason: str | None, pid: int | None = None) -> Outcome:
    return Outcome(start.node.name, start.node.role, outcome, reason, pid)
