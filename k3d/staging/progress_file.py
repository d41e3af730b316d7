"""What work on banks says about itself while it runs: HOME/run/bank-work/PID.json.

The process that works writes its file now and then, in one step; whoever draws frames reads all of
them. One whose process has ended, however that ended, counts for nothing and is cleared away by the
next work that begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from k3d.errors import StoreError
from k3d.store.frame import BankWorkFrame
from k3d.store.paths import run_directory
from k3d.store.run_file import write_atomically
from k3d.store.start_ticks import process_start_ticks

Kind = Literal["build", "stage", "verify", "scrub"]
FOLDER = "bank-work"


class WorkFile(msgspec.Struct, frozen=True):
    """The work of one process; `start_time_ticks` tells it from a later one with its pid."""

    pid: int
    start_time_ticks: int
    works: tuple[BankWorkFrame, ...]

    def alive(self) -> bool:
        return process_start_ticks(self.pid) == self.start_time_ticks


def bank_work(home: Path) -> list[BankWorkFrame]:
    """What is under way in a home, by process and node; what cannot be read is not there."""
    found: list[BankWorkFrame] = []
    for path in sorted((run_directory(home) / FOLDER).glob("*.json")):
        file = _read(path)
        if file is not None and file.alive():
            found += file.works
    return found


class WorkTold:
    """An Emit that writes progress lines down. A home that takes no file goes without."""

    def __init__(self, home: Path, kind: Kind, node: str) -> None:
        self._kind: Kind = kind
        self._node = node
        pid = os.getpid()
        self._path = run_directory(home) / FOLDER / f"{pid}.json"
        self._file = WorkFile(pid, process_start_ticks(pid) or 0, ())

    def __call__(self, line: Mapping[str, Any]) -> None:
        nodes = line.get("nodes")
        works = [self._of_node(each) for each in nodes] if nodes is not None else [self._of(line)]
        self._write(tuple(work for work in works if work is not None))

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def clear_others(self) -> None:
        """Remove what processes left that have ended."""
        for path in self._path.parent.glob("*.json"):
            file = _read(path)
            if file is None or not file.alive():
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def _of(self, line: Mapping[str, Any]) -> BankWorkFrame:
        """One bank, or several that are read together; `what` is NODE/FILE where it is one."""
        node, _, bank = str(line.get("what") or "").rpartition("/")
        return self._frame(node or self._node, bank or str(line["phase"]), line)

    def _of_node(self, line: Mapping[str, Any]) -> BankWorkFrame | None:
        if line["phase"] in ("done", "failed"):
            return None
        return self._frame(str(line["node"]), str(line["file"]), line)

    def _frame(self, node: str, bank: str, line: Mapping[str, Any]) -> BankWorkFrame:
        return BankWorkFrame(
            kind=self._kind,
            node=node,
            bank=bank,
            done_bytes=line["bytes"],
            size_bytes=line["total_bytes"],
            bytes_per_s=line["bytes_per_s"],
            left_s=line["eta_s"],
            found=line.get("found", 0),
        )

    def _write(self, works: tuple[BankWorkFrame, ...]) -> None:
        with suppress(StoreError, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = msgspec.structs.replace(self._file, works=works)
            write_atomically(self._path, msgspec.json.encode(file))


@contextmanager
def telling(home: Path, kind: Kind, node: str) -> Iterator[WorkTold]:
    """Progress of one piece of work, for as long as the context lasts."""
    told = WorkTold(home, kind, node)
    told.clear_others()
    try:
        yield told
    finally:
        told.remove()


def _read(path: Path) -> WorkFile | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=WorkFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
