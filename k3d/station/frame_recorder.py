"""Records frames, what happened between them and how experts are used; a disk that is slow or full
delays nothing but the record."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, Full, Queue
from time import monotonic

import numpy as np

from k3d.errors import K3Error
from k3d.experts.expert_use import ExpertUse
from k3d.station.frame_events import FrameEvents
from k3d.store import use_log
from k3d.store.frame import Frame
from k3d.store.frame_log import FrameLog
from k3d.store.state import StateStore
from k3d.store.telemetry import TelemetryStore
from k3d.store.use_log import ExpertUses, record_uses

WAITING = 120
"""Frames that may wait to be written; more are left out and counted."""
PRUNE_S = 300.0
CLOSE_S = 3.0

log = logging.getLogger(__name__)


class FrameRecorder:
    """One thread writes; `tell` takes a frame from any and never waits."""

    def __init__(self, telemetry: TelemetryStore, state: StateStore, use: ExpertUse) -> None:
        self._telemetry = telemetry
        self._state = state
        self._use = use
        self._frames: Queue[Frame | None] = Queue(maxsize=WAITING)
        self._log = FrameLog(telemetry)
        self._events = FrameEvents()
        self._used = use.snapshot()
        self._rows = use.rows
        self._left_out = 0
        self._troubles: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="frame-recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tell(self, frame: Frame) -> None:
        """Record it soon."""
        try:
            self._frames.put_nowait(frame)
        except Full:
            self._left_out += 1

    def close(self) -> None:
        """Write what waits."""
        if self._thread.ident is None:
            return
        try:
            self._frames.put(None, timeout=CLOSE_S)
        except Full:
            log.warning("frames were still being written when the Station ended")
        self._thread.join(timeout=CLOSE_S)

    def _run(self) -> None:
        pruned_s = used_s = monotonic()
        frame: Frame | None = None
        while True:
            try:
                following = self._frames.get(timeout=PRUNE_S)
            except Empty:
                continue
            if following is None:
                break
            frame = following
            try:
                self._write(frame)
            except Exception:
                log.exception("a frame was not recorded, for a reason that is a bug")
            now_s = monotonic()
            if now_s - pruned_s > PRUNE_S:
                pruned_s = now_s
                self._try("old frames were not given up", self._log.prune)
            if now_s - used_s > use_log.EVERY_S:
                used_s = now_s
                self._write_uses(frame)
        self._try("the last frames were not written", self._log.flush)
        if frame is not None:
            self._write_uses(frame)

    def _write(self, frame: Frame) -> None:
        self._try("a frame was not recorded", lambda: self._log.append(frame))
        if self._left_out:
            log.warning("%d frames were not recorded: the disk is too slow", self._left_out)
            self._left_out = 0
        for kind, message, node in self._events.look(frame):
            self._try(
                "an event was not recorded",
                lambda kind=kind, message=message, node=node: self._state.record_event(
                    kind, message, node=node
                ),
            )

    def _write_uses(self, frame: Frame) -> None:
        now, rows = self._use.snapshot(), self._use.rows
        grown = np.minimum(now - self._used, np.iinfo(np.uint32).max)
        layers, experts = now.shape
        counts = tuple(grown.ravel().tolist())
        uses = ExpertUses(frame.at_ms, frame.epoch, rows - self._rows, layers, experts, counts)
        if uses.rows:
            self._try(
                "the use of experts was not recorded",
                lambda: record_uses(self._telemetry, uses),
            )
        self._used, self._rows = now, rows

    def _try(self, what: str, write: Callable[[], object]) -> None:
        """A trouble is logged when it begins and when it is over."""
        try:
            write()
        except K3Error as error:
            if what not in self._troubles:
                log.error("%s: %s", what, error)
            self._troubles.add(what)
        else:
            if what in self._troubles:
                self._troubles.discard(what)
                log.info("no longer: %s", what)
