"""Traces of live traffic: which experts each token chose, within a budget, off the token path.

The engine's thread copies a pass's routing into buffers that stay and hands stretches of tokens on;
another thread writes them. Drafted rows that were not accepted are no tokens and left out. A
stretch is of one answer, in its order, and has a sequence number of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Full, Queue
from time import monotonic
from typing import Any

import msgspec
import numpy as np

from k3d.engine.pass_plan import Part
from k3d.errors import K3Error, Locked, NotFound
from k3d.experts.routing_copy import RoutingCopy
from k3d.placement.trace import TraceHeader
from k3d.placement.trace_writer import TraceWriter
from k3d.station.assembly import Station
from k3d.station.scheduler import Scheduler

STRETCH = 64
"""Tokens of one answer that are handed on together."""
PERIOD = 256
"""Passes of which a share is recorded, those that follow each other first."""
MOST_OPEN = 64
"""Answers with a stretch begun; beyond that, short stretches are handed on."""
WAITING = 256
"""Stretches that may wait to be written; more are left out and counted."""

log = logging.getLogger(__name__)


class TraceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be recorded: `path` on the Station's machine, a budget, a share of the passes."""

    path: str
    tokens: int = 100_000
    seconds: float = 600.0
    share: float = 1.0
    weights: bool = True


@dataclass
class Recording:
    """One trace being written."""

    asked: TraceBody
    copy: RoutingCopy
    sampled: bool = False
    """Whether the pass under way is to be recorded."""
    began_s: float = field(default_factory=monotonic)
    stretches: Queue[tuple[np.ndarray, np.ndarray]] = field(
        default_factory=lambda: Queue(maxsize=WAITING)
    )
    lanes: dict[int, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    passes: int = 0
    taken: int = 0
    written: int = 0
    left_out: int = 0
    state: str = "recording"
    reason: str | None = None
    enough: threading.Event = field(default_factory=threading.Event)

    def document(self) -> dict[str, Any]:
        """`tokens` counts, while it is recorded, those that wait to be written, too."""
        recording = self.state == "recording"
        return {
            "schema": "k3d.trace/1",
            "path": self.asked.path,
            "state": self.state,
            "reason": self.reason,
            "tokens": self.taken - self.left_out if recording else self.written,
            "left_out": self.left_out,
            "passes": self.passes,
            "seconds": round(monotonic() - self.began_s, 3),
            "provenance": "measured",
        }


class TraceRecorder:
    """Records one trace at a time."""

    def __init__(self, station: Station, scheduler: Scheduler) -> None:
        self._station = station
        self._scheduler = scheduler
        self._guard = threading.Lock()
        self._recording: Recording | None = None
        self._thread: threading.Thread | None = None
        self._watcher: Callable[[list[Part], list[int]], None] | None = None

    def start(self, asked: TraceBody) -> dict[str, Any]:
        """Raises Locked while another trace is recorded, K3Error when it cannot be written."""
        shape, station = self._station.shape, self._station
        header = TraceHeader(
            layers=shape.layers,
            experts=shape.experts,
            top_k=shape.top_k,
            weights=asked.weights,
            source=f"live traffic of pod {station.pod.name}, model {station.model_name}",
        )
        with self._guard:
            if self._recording is not None and self._recording.state == "recording":
                raise Locked(
                    f"{self._recording.asked.path} is being recorded",
                    hint="wait for it, or end it: k3ctl trace record --stop",
                )
            writer = TraceWriter(Path(asked.path), header)
            recording = Recording(asked, station.use.routing)
            self._recording = recording
            self._thread = threading.Thread(
                target=self._write, args=(recording, writer), name="trace", daemon=True
            )
            self._thread.start()
        self._scheduler.between_passes(lambda: self._attach(recording)).result()
        return recording.document()

    def status(self) -> dict[str, Any]:
        """The trace that is recorded, or was last. Raises NotFound before any."""
        if self._recording is None:
            raise NotFound("no trace was recorded", hint="record one: k3ctl trace record FILE")
        return self._recording.document()

    def stop(self) -> dict[str, Any]:
        """End the recording; what was taken is kept. Again is no error."""
        recording, thread = self._recording, self._thread
        if recording is not None and thread is not None:
            recording.enough.set()
            thread.join()
        return self.status()

    def close(self) -> None:
        if self._recording is not None:
            self.stop()

    # In the engine's thread

    def _attach(self, recording: Recording) -> None:
        self._watcher = lambda parts, used: self._take(recording, parts, used)
        self._sample(recording, True)
        self._station.engine.watchers.append(self._watcher)

    def _detach(self, recording: Recording) -> None:
        self._sample(recording, False)
        if self._watcher is not None:
            self._station.engine.watchers.remove(self._watcher)
            self._watcher = None

    def _sample(self, recording: Recording, wanted: bool) -> None:
        recording.sampled = wanted
        recording.copy.weighs = wanted and recording.asked.weights

    def _take(self, recording: Recording, parts: Sequence[Part], used: Sequence[int]) -> None:
        """After a pass: keep the rows that became tokens or were of a prompt."""
        copy, asked = recording.copy, recording.asked
        sampled = recording.sampled
        if sampled and copy.complete and copy.rows == sum(part.rows for part in parts):
            first = 0
            for part, count in zip(parts, used, strict=True):
                room = min(count, asked.tokens - recording.taken)
                if room > 0:
                    self._keep(recording, part.sequence.arrival, first, room)
                first += part.rows
        recording.passes += 1
        wanted = recording.passes % PERIOD < asked.share * PERIOD
        if sampled and not wanted:
            self._hand_on_all(recording)
        self._sample(recording, wanted)
        if recording.taken >= asked.tokens:
            self._hand_on_all(recording)
            self._detach(recording)
            recording.enough.set()

    def _keep(self, recording: Recording, lane: int, first: int, count: int) -> None:
        copy, rows = recording.copy, slice(first, first + count)
        ids = copy.ids[:, rows].numpy().transpose(1, 0, 2).copy()
        weights = copy.weights[:, rows].numpy().transpose(1, 0, 2).copy()
        kept = recording.lanes.setdefault(lane, [])
        kept.append((ids, weights))
        recording.taken += count
        if sum(len(each) for each, _ in kept) >= STRETCH:
            self._hand_on(recording, lane)
        elif len(recording.lanes) > MOST_OPEN:
            self._hand_on_all(recording)

    def _hand_on_all(self, recording: Recording) -> None:
        for lane in list(recording.lanes):
            self._hand_on(recording, lane)

    def _hand_on(self, recording: Recording, lane: int) -> None:
        ids, weights = zip(*recording.lanes.pop(lane), strict=True)
        stretch = np.concatenate(ids), np.concatenate(weights)
        try:
            recording.stretches.put_nowait(stretch)
        except Full:
            recording.left_out += len(stretch[0])

    # In the writer's thread

    def _write(self, recording: Recording, writer: TraceWriter) -> None:
        until_s = recording.began_s + recording.asked.seconds
        try:
            with writer:
                sequence = 0
                while monotonic() < until_s and not recording.enough.is_set():
                    sequence = self._write_waiting(recording, writer, sequence, 0.1)
                self._end(recording)
                self._write_waiting(recording, writer, sequence, 0.0)
            recording.state = "done"
        except K3Error as error:
            recording.state, recording.reason = "failed", error.message
            log.error("the trace %s was not recorded: %s", recording.asked.path, error)
            self._end(recording)

    def _end(self, recording: Recording) -> None:
        def end() -> None:
            self._hand_on_all(recording)
            self._detach(recording)

        try:
            self._scheduler.between_passes(end).result()
        except K3Error as error:
            log.info("the trace ends with the Station: %s", error)

    def _write_waiting(
        self, recording: Recording, writer: TraceWriter, sequence: int, wait_s: float
    ) -> int:
        """Write stretches until none waits; the number that the next sequence gets."""
        while True:
            try:
                ids, weights = recording.stretches.get(timeout=wait_s or None, block=wait_s > 0)
            except Empty:
                return sequence
            kept = weights if recording.asked.weights else None
            writer.append(ids, kept, np.full(len(ids), sequence, dtype=np.uint32))
            recording.written += len(ids)
            sequence += 1
