"""Processes of this machine: start a daemon, find the daemons of a home, end one."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from k3d.errors import K3Error
from k3d.store.run_file import log_path, process_start_ticks

LARGEST_LOG_BYTES = 8 * 1024 * 1024

Ending = Literal["stopped", "killed", "not running"]


@dataclass(frozen=True)
class DaemonProcess:
    """A running k3d of one home. `name` is None for the Station, whose name is not an argument."""

    pid: int
    start_time_ticks: int
    role: str
    name: str | None


def daemon_command() -> list[str]:
    """How to start k3d: $K3_DAEMON, else the k3d beside this Python, else the module."""
    chosen = os.environ.get("K3_DAEMON")
    if chosen:
        return shlex.split(chosen)
    beside = Path(sys.executable).with_name("k3d")
    if beside.is_file():
        return [str(beside)]
    found = shutil.which("k3d")
    return [found] if found else [sys.executable, "-m", "k3d.main"]


@dataclass
class Child:
    """A daemon that this process started and that outlives it."""

    pid: int
    exit_code: int | None = None

    def ended(self) -> bool:
        """Whether it has ended; `exit_code` then says how (negative: by that signal)."""
        if self.exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code is not None


def start_daemon(home: Path, name: str, arguments: Sequence[str]) -> Child:
    """Start one daemon in its own session, its stdout and stderr at the end of run/<name>.log."""
    log = log_path(home, name)
    command = [*daemon_command(), *arguments]
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    _prepare_log(log, append)
    try:
        pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=[signal.SIGPIPE],
        )
        return Child(pid)
    except OSError as error:
        raise K3Error(
            f"{name} cannot be started with {shlex.join(command[:1])}: {error.strerror}",
            hint="install the node extra: pip install 'k3pod[node]'",
        ) from error


def _prepare_log(log: Path, append: int) -> None:
    """Put a log that has grown large aside, and see that the daemon will be able to write one."""
    try:
        if log.is_file() and log.stat().st_size > LARGEST_LOG_BYTES:
            log.replace(log.with_name(log.name + ".1"))
        os.close(os.open(log, append, 0o644))
    except OSError as error:
        raise K3Error(
            f"the log {log} cannot be written: {error.strerror}",
            hint="move it away, or make room and see that the home is yours",
        ) from error


def find_daemons(home: Path) -> Iterator[DaemonProcess]:
    """Every k3d of this home on this machine, whether it has a run file or not."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        arguments = command_line(pid)
        role = _role(arguments)
        if role is None or not _same_home(pid, _value(arguments, "--home"), home):
            continue
        ticks = process_start_ticks(pid)
        if ticks is not None:
            yield DaemonProcess(pid, ticks, role, _value(arguments, "--name"))


def _same_home(pid: int, named: str | None, home: Path) -> bool:
    """Whether a daemon's --home is this home, however each of the two is spelled."""
    if named is None:
        return False
    return os.path.realpath(f"/proc/{pid}/cwd/{named}" if named[:1] != "/" else named) == (
        os.path.realpath(home)
    )


def command_line(pid: int) -> list[str]:
    """A process's arguments; empty when it is gone or not ours to see."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in text.split(b"\0")[:-1]]


def process_state(pid: int) -> str | None:
    """The kernel's letter for a process: R, S, T (stopped), Z...; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[0]


def end_process(pid: int, start_time_ticks: int, *, deadline_s: float) -> Ending:
    """SIGTERM, then SIGKILL after the deadline; nothing to a later process with the same pid.

    Returns once the process is gone.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return "not running"
    try:
        # Checked after the handle is open: from here on it cannot become another process.
        if process_start_ticks(pid) != start_time_ticks:
            return "not running"
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        # A stopped process gets its SIGTERM only once it goes on.
        signal.pidfd_send_signal(handle, signal.SIGCONT)
        if _gone(handle, pid, deadline_s):
            return "stopped"
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        if not _gone(handle, pid, deadline_s):
            raise K3Error(
                f"process {pid} does not end even when killed",
                hint="it waits in the kernel, for a device or a file system: see dmesg",
            )
        return "killed"
    except ProcessLookupError:
        return "not running"
    except PermissionError as error:
        raise K3Error(
            f"process {pid} belongs to another user", hint="run as the user that started the pod"
        ) from error
    finally:
        os.close(handle)


def _gone(handle: int, pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended. A zombie that someone else must reap has ended."""
    deadline = time.monotonic() + timeout_s
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if poller.poll(max(0, int(left * 1000))):
            return True
        if left <= 0:
            return process_state(pid) in (None, "Z", "X")


def _role(arguments: Sequence[str]) -> str | None:
    """`station` or `spark` for the command line of a k3d, else None."""
    for position, argument in enumerate(arguments[:-1]):
        program = Path(argument).name in ("k3d", "k3d.main")
        if program and arguments[position + 1] in ("station", "spark"):
            return arguments[position + 1]
    return None


def _value(arguments: Sequence[str], option: str) -> str | None:
    for position, argument in enumerate(arguments):
        if argument == option and position + 1 < len(arguments):
            return arguments[position + 1]
    return None
