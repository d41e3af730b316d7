"""A spark whose experts are numbers: a fake at the worker's own boundary, and a process around it.

A record's eight bytes are a number; a dispatch's rows are numbers; the partial of a row is the row
plus all numbers loaded for that layer. Layer HANG_LAYER never answers, FAIL_LAYER raises.
"""

from __future__ import annotations

import argparse
import array
import ctypes
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from k3d.errors import BankError, FabricError
from k3d.fabric import Facts, Record, listen
from k3d.fabric.facts import StagedBank
from k3d.fabric.records import Name
from k3d.node.spark import SparkServer
from k3d.station.membership import LinkTimes, SparkLink
from k3d.store.frame import Sensors

ROOT = Path(__file__).resolve().parents[2]
SECRET = b"0123456789abcdef" * 4
OTHER_SECRET = b"fedcba9876543210" * 4
HANG_LAYER, FAIL_LAYER = 77, 78
CAPACITY_BYTES = 1 << 20
MODEL = "a1" * 32
PR_SET_PDEATHSIG = 1
QUICK = LinkTimes(retry_first_s=0.02, retry_most_s=0.1, connect_s=0.5, handshake_s=1.0)


class SummingWorker:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.epochs: tuple[int, ...] = ()
        self.numbers: dict[int, tuple[int, int]] = {}  # slot -> layer, number
        self.staged_slots: set[int] = set()
        self.disk: dict[bytes, bytes] = {}
        """What it can fill slots from: records by digest."""

    @property
    def bank(self) -> StagedBank | None:
        return StagedBank("disk", len(self.disk)) if self.disk else None

    def look_for_banks(self, station: Facts) -> None:
        """The disk is as the test left it."""

    def fill(self, names: Iterable[Name]) -> list[int]:
        lacking = []
        for index, (slot, layer, expert, digest) in enumerate(names):
            if digest in self.disk:
                self.load(slot, layer, expert, memoryview(self.disk[digest]), digest)
            else:
                lacking.append(index)
        return lacking

    @property
    def loaded(self) -> int:
        return len(self.numbers)

    def load(self, slot: int, layer: int, expert: int, record: memoryview, digest: bytes) -> None:
        if hashlib.sha256(record).digest() != digest:
            raise BankError(f"layer {layer} expert {expert} does not match its digest")
        self.numbers[slot] = (layer, int.from_bytes(record, "little"))
        if self.epochs:
            self.staged_slots.add(slot)

    @property
    def staged(self) -> int:
        return len(self.staged_slots)

    def commit(self, epoch: int) -> None:
        self.epochs = (*self.epochs, epoch)

    def settle(self, epoch: int, slots: Sequence[int]) -> None:
        self.epochs = (epoch,)
        self.staged_slots.clear()
        for slot in slots:
            del self.numbers[slot]

    def unstage(self) -> None:
        for slot in self.staged_slots:
            del self.numbers[slot]
        self.settle(self.epochs[0], ())

    def reset(self) -> None:
        self.numbers.clear()
        self.staged_slots.clear()
        self.epochs = ()

    def serve(self, epoch: int, layer: int, payload: memoryview, rows: int) -> Sequence[memoryview]:
        if epoch not in self.epochs:
            raise FabricError(
                f"dispatch of epoch {epoch}, epoch {', '.join(map(str, self.epochs))} is loaded"
            )
        if layer == FAIL_LAYER:
            raise BankError("layer 78 is on fire", hint="put it out")
        if layer == HANG_LAYER:
            threading.Event().wait()
        total = sum(number for at, number in self.numbers.values() if at == layer)
        values = [value + total for value in array.array("q", payload.tobytes())]
        assert len(values) == rows
        return [memoryview(array.array("q", values)).cast("B")]


def records(count: int = 6, layer: int = 3) -> Iterator[Record]:
    for slot in range(count):
        body = (1000 + slot).to_bytes(8, "little")
        yield Record(slot, layer, slot, hashlib.sha256(body).digest(), body)


LAYER_SUM = sum(1000 + slot for slot in range(6))


def station_facts(name: str = "spark-1", **changes: Any) -> Facts:
    facts = Facts(
        role="station",
        node="station",
        calling=name,
        incarnation=1,
        version="0.1.0",
        capacity_bytes=CAPACITY_BYTES,
        model_digest=MODEL,
        slice_index=0,
        slice_count=4,
        slots=8,
        slice_bytes=8,
        shape={"layers": [3], "experts": 6},
        dtype="bf16",
        epoch=5,
        placement_digest="p1",
    )
    return msgspec.structs.replace(facts, **changes)


def spark_facts(name: str = "spark-1", **changes: Any) -> Facts:
    facts = Facts(role="spark", node=name, version="0.1.0", capacity_bytes=CAPACITY_BYTES)
    return msgspec.structs.replace(facts, **changes)


def rows_of(*values: int) -> memoryview:
    return memoryview(array.array("q", values)).cast("B")


def values_of(payload: memoryview) -> list[int]:
    return array.array("q", payload.tobytes()).tolist()


def hop(link: SparkLink, *values: int, layer: int = 3) -> list[int]:
    link.begin(layer, len(values), [rows_of(*values)])
    return values_of(link.finish().payload)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    """Wait for `condition` with a deadline, giving other threads the processor meanwhile."""
    deadline = monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert monotonic() < deadline, f"not within {timeout_s} s: {what}"
        pause.wait(0.002)


@dataclass
class Running:
    """A spark in a thread of the test's process."""

    server: SparkServer
    address: str
    transport: str
    workers: list[SummingWorker] = field(default_factory=list)


@contextmanager
def thread_spark(
    transport: str = "shm",
    secret: bytes = SECRET,
    facts: Facts | None = None,
    sensors: Callable[[], Sensors | None] = lambda: None,
) -> Iterator[Running]:
    workers: list[SummingWorker] = []

    def make(station: Facts) -> SummingWorker:
        workers.append(SummingWorker(station))
        return workers[-1]

    listener = listen(transport, capacity_bytes=CAPACITY_BYTES)
    server = SparkServer(make, listener, secret, facts or spark_facts(), sensors)
    thread = threading.Thread(target=server.run, name="spark", daemon=True)
    thread.start()
    try:
        yield Running(server, listener.address, transport, workers)
    finally:
        server.stop()
        thread.join(10.0)
        assert not thread.is_alive()


@dataclass
class SparkProcess:
    """A spark in a process of its own, to be killed and stopped."""

    process: subprocess.Popen[str]
    address: str

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(10.0)


def start_process(
    transport: str = "shm", *, name: str = "spark-1", secret: bytes = SECRET
) -> SparkProcess:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "tests.fabric.summing_spark",
            "--transport", transport, "--name", name, "--secret", secret.hex(),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "the spark process did not start"
    return SparkProcess(process, address)


@contextmanager
def spark_process(transport: str = "shm", *, name: str = "spark-1") -> Iterator[SparkProcess]:
    spark = start_process(transport, name=name)
    try:
        yield spark
    finally:
        end_process(spark)


def end_process(spark: SparkProcess) -> None:
    spark.process.kill()
    spark.process.wait(10.0)
    assert spark.process.stdout is not None
    spark.process.stdout.close()


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--secret", required=True)
    given = parser.parse_args()
    listener = listen(given.transport, capacity_bytes=CAPACITY_BYTES)
    sys.stdout.write(listener.address + "\n")
    sys.stdout.flush()
    secret = bytes.fromhex(given.secret)
    SparkServer(SummingWorker, listener, secret, spark_facts(given.name)).run()


if __name__ == "__main__":
    main()
