"""What a spark does with a frame: load, fill, commit, serve, retire, answer pings, in one thread.

Slices of a later epoch may be staged and committed while the epoch in force is served; then both
are, until a retire says which one stays.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic, perf_counter_ns
from typing import Protocol

import msgspec

from k3d.errors import FabricError, K3Error
from k3d.fabric.control import Commit, Counters, decode, encode, failure_reply
from k3d.fabric.facts import Facts, Holding, StagedBank
from k3d.fabric.frames import Frame, Kind, Reply
from k3d.fabric.handshake import check_fit
from k3d.fabric.records import Name, lacking_part, read_names, read_records, read_slots
from k3d.store.frame import Sensors

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STATION = "the Station"

log = logging.getLogger(__name__)


class Worker(Protocol):
    """What a spark needs of the thing that computes. All of it raises K3Error for bad input."""

    @property
    def loaded(self) -> int:
        """Expert slices in its slots."""
        ...

    def load(self, slot: int, layer: int, expert: int, record: memoryview, digest: bytes) -> None:
        """Put one slice in a slot, if its bytes match their blake3 digest."""
        ...

    @property
    def bank(self) -> StagedBank | None:
        """What was found on this node's disk to fill slots from; None where nobody looked."""
        ...

    def look_for_banks(self, station: Facts) -> None:
        """See what this node's disk has of what a Station is about to ask for."""
        ...

    def fill(self, names: Iterable[Name]) -> list[int]:
        """Put slices in slots from this node's disk; the indexes of those that it has not."""
        ...

    @property
    def staged(self) -> int:
        """Those of them that were loaded since a commit and may be dropped again."""
        ...

    def commit(self, epoch: int) -> None:
        """Serve this epoch too."""
        ...

    def settle(self, epoch: int, slots: Sequence[int]) -> None:
        """Serve this epoch only; the slots held what it does not need."""
        ...

    def unstage(self) -> None:
        """Drop what was staged, and the epoch it was for."""
        ...

    def reset(self) -> None: ...

    def serve(self, epoch: int, layer: int, payload: memoryview, rows: int) -> Sequence[memoryview]:
        """Parts of the partial that answers a dispatch; they stay as they are until the next."""
        ...


class Serving:
    """A worker, what it holds, and what it has done, kept from one Station to the next."""

    def __init__(
        self,
        worker_factory: Callable[[Facts], Worker],
        facts: Facts,
        sensors: Callable[[], Sensors | None],
    ) -> None:
        """`sensors` answers at once: a ping is between two dispatches."""
        self._worker_factory = worker_factory
        self._sensors = sensors
        self._facts = facts
        self._name = facts.node
        self._worker: Worker | None = None
        self._station: Facts | None = None
        self.holding: Holding | None = None
        self._standby: Holding | None = None  # committed, and not in force yet
        self.loaded = 0
        self.served_dispatches = 0
        self.served_rows = 0
        self.compute_ns = 0
        self.busy_since_s: float | None = None
        self.last_error: str | None = None
        self._handlers: dict[Kind, Callable[[Frame], Reply]] = {
            Kind.DISPATCH: self._dispatch,
            Kind.PING: self._ping,
            Kind.LOAD: self._load,
            Kind.FILL: self._fill,
            Kind.COMMIT: self._commit,
            Kind.RETIRE: self._retire,
            Kind.RESET: self._reset,
        }

    @property
    def slots(self) -> int | None:
        """Slots of the worker; None while neither the start nor a Station has told."""
        return self._station.slots if self._station is not None else self._facts.slots

    def own_facts(self) -> Facts:
        """What this spark was started with and what it holds. Any thread."""
        holding, worker = self.holding, self._worker
        if holding is not None and worker is not None:
            holding = msgspec.structs.replace(holding, staged=worker.staged)
        staged = None if worker is None else worker.bank
        return msgspec.structs.replace(self._facts, holding=holding, staged=staged)

    def admit(self, station: Facts) -> None:
        """Serve `station` from now on, with a new worker unless the one there fits it.

        Raises HandshakeRefused when the two do not fit, K3Error when no worker can be made.
        """
        check_fit(station, self.own_facts())
        if self._worker is None or _worker_facts(self._station) != _worker_facts(station):
            self._worker, self.loaded = None, 0
            self._promise_nothing()
            self._worker = self._worker_factory(station)
        self._worker.look_for_banks(station)
        self._station = station
        self.last_error = None

    def answer(self, frame: Frame) -> Reply:
        """Serve one frame of the admitted Station; a K3Error becomes an ERROR reply."""
        handler = self._handlers.get(frame.kind)
        self.busy_since_s = monotonic()
        try:
            if handler is None:
                raise FabricError(f"{self._name} got {frame.kind.name}, which asks for nothing")
            return handler(frame)
        except K3Error as error:
            self.note(error)
            return failure_reply(error)
        finally:
            self.busy_since_s = None

    def note(self, error: K3Error) -> None:
        """Log `error` and keep it for the health answer."""
        self.last_error = error.message
        log.warning("%s: %s", self._name, error)

    def _dispatch(self, frame: Frame) -> Reply:
        begun_ns = perf_counter_ns()
        try:
            parts = self._ready_worker().serve(frame.epoch, frame.layer, frame.payload, frame.rows)
        except K3Error:
            # What is held is in doubt: the next handshake must not promise it.
            self._promise_nothing()
            raise
        took_ns = perf_counter_ns() - begun_ns
        self.served_dispatches += 1
        self.served_rows += frame.rows
        self.compute_ns += took_ns
        return Reply(Kind.PARTIAL, parts, frame.epoch, frame.layer, frame.rows, took_ns)

    def _ping(self, frame: Frame) -> Reply:
        counters = Counters(
            pid=os.getpid(),
            rss_bytes=_rss_bytes(),
            loaded=self.loaded,
            served_dispatches=self.served_dispatches,
            served_rows=self.served_rows,
            compute_ns=self.compute_ns,
            sensors=self._sensors(),
        )
        return Reply(Kind.PONG, (encode(counters),), frame.epoch)

    def _load(self, frame: Frame) -> Reply:
        worker, station = self._ready_worker(), self._station
        slice_bytes = station.slice_bytes if station is not None else None
        if not slice_bytes:
            raise FabricError(f"{self._name} got records before it was told their size")
        self._expect_records(frame)
        begun_ns = perf_counter_ns()
        for slot, layer, expert, digest, body in read_records(
            frame.payload, frame.rows, slice_bytes, STATION
        ):
            worker.load(slot, layer, expert, memoryview(body), digest)
        self.loaded = worker.loaded
        took_ns = perf_counter_ns() - begun_ns
        return Reply(Kind.LOADED, (), frame.epoch, 0, frame.rows, took_ns)

    def _fill(self, frame: Frame) -> Reply:
        worker = self._ready_worker()
        self._expect_records(frame)
        begun_ns = perf_counter_ns()
        lacking = worker.fill(read_names(frame.payload, frame.rows, STATION))
        self.loaded = worker.loaded
        took_ns = perf_counter_ns() - begun_ns
        bits = lacking_part(frame.rows, lacking)
        return Reply(Kind.FILLED, (bits,), frame.epoch, 0, frame.rows, took_ns)

    def _expect_records(self, frame: Frame) -> None:
        """Until the next commit this spark holds nothing that it could promise again, unless the
        records are of a later epoch."""
        if self.holding is None or frame.epoch <= self.holding.epoch:
            self._promise_nothing()

    def _commit(self, frame: Frame) -> Reply:
        worker, station = self._ready_worker(), self._station
        commit = decode(frame, Commit, STATION)
        found = self.loaded = worker.loaded
        if found != commit.records:
            raise FabricError(
                f"{self._name} holds {found} expert slices, "
                f"epoch {frame.epoch} needs {commit.records}"
            )
        worker.commit(frame.epoch)
        if station is None:
            return Reply(Kind.COMMITTED, (), frame.epoch, 0, found)
        committed = Holding(
            station.model_digest,
            station.slice_index,
            station.slice_count,
            frame.epoch,
            commit.placement_digest,
            found,
        )
        if self.holding is None:
            worker.settle(frame.epoch, ())
            self.holding = committed
        else:
            self._standby = committed
        return Reply(Kind.COMMITTED, (), frame.epoch, 0, found)

    def _retire(self, frame: Frame) -> Reply:
        worker, held, standby = self._ready_worker(), self.holding, self._standby
        slots = read_slots(frame.payload, frame.rows, STATION)
        if standby is not None and standby.epoch == frame.epoch:
            worker.settle(frame.epoch, slots)
            self.holding = msgspec.structs.replace(standby, records=worker.loaded)
        elif held is not None and held.epoch == frame.epoch and not slots:
            worker.unstage()
        else:
            epoch = None if held is None else held.epoch
            raise FabricError(
                f"{self._name} was told to keep epoch {frame.epoch} and holds epoch {epoch}"
            )
        self._standby = None
        self.loaded = worker.loaded
        return Reply(Kind.RETIRED, (), frame.epoch, 0, self.loaded)

    def _reset(self, frame: Frame) -> Reply:
        self._promise_nothing()
        self._ready_worker().reset()
        self.loaded = 0
        return Reply(Kind.LOADED, (), frame.epoch)

    def _promise_nothing(self) -> None:
        self.holding = self._standby = None

    def _ready_worker(self) -> Worker:
        if self._worker is None:
            raise FabricError(f"{self._name} was asked before a handshake gave it experts")
        return self._worker


def _worker_facts(station: Facts | None) -> tuple[object, ...] | None:
    """What a worker is made from."""
    if station is None:
        return None
    return (
        station.model_digest,
        station.slice_index,
        station.slice_count,
        station.slots,
        station.slice_bytes,
        station.shape,
        station.dtype,
    )


def _rss_bytes() -> int | None:
    try:
        resident_pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(resident_pages) * PAGE_BYTES
