"""Taking a pod down: every daemon of the home ends, and what it left lying about goes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from k3ctl.client.pod_run import read_pod_run, remove_pod_run
from k3ctl.client.processes import DaemonProcess, Ending, end_process, find_daemons
from k3d.errors import K3Error, StoreError
from k3d.store.lock import FileLock
from k3d.store.paths import run_directory
from k3d.store.run_file import read_run_file, run_file_path


@dataclass(frozen=True)
class Departure:
    """How one node went: "stopped", "killed", "not running" or "failed"."""

    node: str
    role: str
    outcome: Ending | str
    reason: str | None = None
    pid: int | None = None


def take_down(
    home: Path,
    *,
    deadline_s: float,
    lock_wait_s: float = 0.0,
    progress: Callable[[Departure], None] | None = None,
) -> list[Departure]:
    """End every daemon of a home, the Station first; nothing running is fine.

    A daemon that does not end within the deadline is killed.
    """
    directory = run_directory(home)
    if not directory.is_dir():
        if next(find_daemons(home), None) is None:
            return []
        directory.mkdir(parents=True, exist_ok=True)  # somebody removed it under a running pod
    with FileLock(directory / "pod.lock", f"the pod of {home}", "k3ctl pod down", lock_wait_s):
        departures = []
        names = _names(home)
        daemons = _daemons(home)

        def end(daemon: DaemonProcess) -> Departure:
            name = daemon.name or names.get(daemon.pid) or daemon.role
            return _end(daemon, name, deadline_s)

        with ThreadPoolExecutor(max_workers=16) as pool:
            for role in ("station", "spark"):
                group = [daemon for daemon in daemons if daemon.role == role]
                for departure in pool.map(end, group):
                    departures.append(departure)
                    if progress is not None:
                        progress(departure)
        ended = {departure.node for departure in departures}
        departures += [
            Departure(name, role, "not running")
            for name, role in _expected(home).items()
            if name not in ended
        ]
        if all(departure.outcome != "failed" for departure in departures):
            for path in directory.glob("*.json"):
                path.unlink(missing_ok=True)
            remove_pod_run(home)
        return departures


def _daemons(home: Path) -> list[DaemonProcess]:
    """Every daemon of the home: by its command line, or by a run file that is about a live one."""
    found = {daemon.pid: daemon for daemon in find_daemons(home)}
    for path in run_directory(home).glob("*.json"):
        with contextlib.suppress(StoreError):
            run = read_run_file(home, path.stem) if path.stem != "pod" else None
            if run is not None and run.alive():
                found.setdefault(
                    run.pid, DaemonProcess(run.pid, run.start_time_ticks, run.role, run.name)
                )
    return list(found.values())


def _end(daemon: DaemonProcess, name: str, deadline_s: float) -> Departure:
    try:
        ending = end_process(daemon.pid, daemon.start_time_ticks, deadline_s=deadline_s)
    except K3Error as error:
        return Departure(name, daemon.role, "failed", error.message, daemon.pid)
    reason = f"it did not end within {deadline_s:g} s" if ending == "killed" else None
    return Departure(name, daemon.role, ending, reason, daemon.pid)


def _names(home: Path) -> dict[int, str]:
    """Names of daemons by pid, from the run files that can be read."""
    found = {}
    for path in run_directory(home).glob("*.json"):
        if path != run_file_path(home, "pod"):
            try:
                run = read_run_file(home, path.stem)
            except StoreError:
                continue  # removed below with the others
            if run is not None:
                found[run.pid] = run.name
    return found


def _expected(home: Path) -> dict[str, str]:
    try:
        run = read_pod_run(home)
    except StoreError:
        return {}
    return {} if run is None else {node.name: node.role for node in run.nodes}
