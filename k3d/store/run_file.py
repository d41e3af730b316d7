"""Run files: what a daemon says about itself to the other processes of its machine."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from k3d import __version__
from k3d.errors import StoreError
from k3d.store.paths import run_directory
from k3d.store.start_ticks import process_start_ticks

SCHEMA = "k3d.run/1"


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """One running daemon. `start_time_ticks` tells it from a later process with the same pid."""

    schema: str = SCHEMA
    pid: int
    start_time_ticks: int
    name: str
    role: str
    http_host: str
    http_port: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    fabric_address: str | None = None
    pod: str
    version: str
    started_at: str

    @classmethod
    def of_this_process(
        cls,
        *,
        name: str,
        role: str,
        pod: str,
        http_host: str,
        http_port: int,
        fabric_address: str | None = None,
    ) -> RunFile:
        """A run file for the calling process, started now."""
        pid = os.getpid()
        return cls(
            pid=pid,
            start_time_ticks=process_start_ticks(pid) or 0,
            name=name,
            role=role,
            http_host=http_host,
            http_port=http_port,
            fabric_address=fabric_address,
            pod=pod,
            version=__version__,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @property
    def url(self) -> str:
        host = f"[{self.http_host}]" if ":" in self.http_host else self.http_host
        return f"http://{host}:{self.http_port}"

    def alive(self) -> bool:
        """Whether the very process that wrote this still runs (not another with its pid)."""
        return process_start_ticks(self.pid) == self.start_time_ticks

    def write(self, home: Path) -> None:
        """Publish the file in one step: a reader sees the old one or the whole new one."""
        write_atomically(run_file_path(home, self.name), msgspec.json.encode(self))

    def remove(self, home: Path) -> None:
        """Remove the file if it is still about this process."""
        current = read_run_file(home, self.name)
        if current is not None and current.pid == self.pid:
            run_file_path(home, self.name).unlink(missing_ok=True)


def run_file_path(home: Path, name: str) -> Path:
    return run_directory(home) / f"{name}.json"


def log_path(home: Path, name: str) -> Path:
    return run_directory(home) / f"{name}.log"


def read_run_file(home: Path, name: str) -> RunFile | None:
    """The run file of a node, or None when there is none.

    Raises StoreError when there is one that cannot be understood.
    """
    path = run_file_path(home, name)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=RunFile)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(
            f"the run file {path} cannot be read: {error}",
            hint="remove it, then: k3ctl pod down; k3ctl pod up",
        ) from error
    if found.schema != SCHEMA:
        raise StoreError(
            f"the run file {path} has schema {found.schema!r}, not {SCHEMA!r}",
            hint="it was written by another version: remove it",
        )
    return found


@dataclass(frozen=True)
class RunFiles:
    """The run files of a home. One that cannot be understood hides no other.

    `found` has the Station first, then the sparks by name; nodes may be dead. `damaged` has an
    error a file, by the name of the node it should be about.
    """

    found: tuple[RunFile, ...]
    damaged: dict[str, StoreError]

    @property
    def station(self) -> RunFile | None:
        """The Station, if it runs."""
        return next((run for run in self.found if run.role == "station" and run.alive()), None)


def read_run_files(home: Path) -> RunFiles:
    """Every run file of the home."""
    found, damaged = [], {}
    for path in sorted(run_directory(home).glob("*.json")):
        if path.stem == "pod":
            continue
        try:
            run = read_run_file(home, path.stem)
        except StoreError as error:
            damaged[path.stem] = error
            continue
        if run is not None:
            found.append(run)
    found.sort(key=lambda run: (run.role != "station", _natural(run.name)))
    return RunFiles(tuple(found), damaged)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by new content, through a temporary file beside it."""
    import tempfile  # those who only read, and start cold, do without it

    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}",
            hint="check that the home exists, is yours and has free space",
        ) from error


def _natural(name: str) -> tuple[str, int]:
    """spark-2 before spark-10."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, 0)
