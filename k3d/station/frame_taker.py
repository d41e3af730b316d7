"""Takes a frame of the pod once a second, in a thread that waits for nobody.

Everything it reads is in this process and was written there by whoever knows: a node that hangs
makes its own figures older, never the next frame late.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from time import monotonic

import msgspec

from k3d import __version__
from k3d.station.frame_attention import AttentionWatch
from k3d.station.frame_nodes import NodeWatch
from k3d.station.frame_rates import rates
from k3d.station.frame_tiers import TierWatch
from k3d.station.lane_watch import LaneWatch
from k3d.station.status import StationView
from k3d.station.swap_execution import rows_of_lanes
from k3d.station.token_gaps import TokenGaps
from k3d.store.frame import (
    Attention,
    BankWorkFrame,
    Frame,
    Sensors,
    SwapFrame,
    encode,
)

EVERY_S = 1.0

log = logging.getLogger(__name__)


class FrameTaker:
    """The newest frame, for any thread. `attention` and `bank_work` may be added to before the
    start: functions that answer at once; `told` is handed every frame and must not wait either."""

    def __init__(
        self, view: StationView, sensors: Callable[[], Sensors | None] = lambda: None
    ) -> None:
        station, self._view = view.station, view
        self._sensors = sensors
        self.lanes = LaneWatch(station.engine)
        self.attention: list[Callable[[], Iterable[Attention]]] = []
        self.bank_work: list[Callable[[], Iterable[BankWorkFrame]]] = []
        self.told: list[Callable[[Frame], None]] = []
        most_rows = rows_of_lanes(station)
        self._nodes = NodeWatch(station, view.scheduler, most_rows)
        self._tiers = TierWatch(station, most_rows)
        self._watch = AttentionWatch()
        self._gaps = TokenGaps()
        station.engine.watchers.append(self._gaps.note)
        self._gaps_before = 0
        self._before = view.scheduler.counts()
        self._before_s = monotonic()
        self._sequence = 0
        self._swap_names: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frames", daemon=True)

    def start(self) -> None:
        """Once the engine runs. There is a frame from here on."""
        self.take()
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=EVERY_S)

    @property
    def latest(self) -> Frame:
        return self._latest

    @property
    def latest_json(self) -> bytes:
        return self._latest_json

    def take(self) -> Frame:
        """Take a frame now, of the time since the one before."""
        now_s = monotonic()
        interval_s = now_s - self._before_s
        view, station = self._view, self._view.station
        engine = station.engine
        state, reason = view.state()
        counts = view.scheduler.counts()
        gaps = self._gaps.count
        p50_us, p99_us = self._gaps.since(self._gaps_before, gaps)
        frame = Frame(
            at_ms=time.time_ns() // 1_000_000,
            sequence=self._sequence,
            interval_s=round(interval_s, 3),
            pod=station.pod.name,
            state=state,
            reason=reason,
            version=__version__,
            model=station.model_name,
            model_digest=station.model_digest,
            dtype=station.options.dtype,
            epoch=station.placement.epoch,
            placement=station.in_force.name,
            policy=station.options.placement,
            transport=station.options.transport,
            api_url=view.api_url,
            uptime_s=round(now_s - view.started_s, 1),
            token_p50_us=p50_us,
            token_p99_us=p99_us,
            most_lanes=engine.limits.lanes,
            synthetic_acceptance=engine.synthetic_acceptance,
            nodes=self._nodes.look(state, reason, self._sensors()),
            tiers=self._tiers.look(interval_s),
            lanes=self.lanes.look(interval_s),
            swap=self._swap(),
            bank_work=tuple(each for source in self.bank_work for each in source()),
            **rates(counts, self._before, interval_s),
        )
        joins = {link.node: link.joins for link in station.membership}
        found = self._watch.look(frame, joins, engine_alive=view.scheduler.alive)
        others = (each for source in self.attention for each in source())
        frame = msgspec.structs.replace(frame, attention=(*found, *others))
        self._gaps_before, self._before, self._before_s = gaps, counts, now_s
        self._sequence += 1
        self._latest_json = encode(frame)
        self._latest = frame
        return frame

    def _swap(self) -> SwapFrame | None:
        swaps = self._view.swaps
        progress = swaps.progress if swaps is not None else None
        if swaps is None or progress is None:
            return None
        name = self._swap_names.get(progress.intent)
        if name is None:
            name = swaps.swaps.swap(progress.intent).plan["name"]
            self._swap_names = {progress.intent: name}
        return SwapFrame(
            intent=progress.intent,
            to=name,
            phase=progress.phase,
            wave=progress.wave,
            waves=progress.waves,
            copied_bytes=progress.copied_bytes,
            size_bytes=progress.planned_bytes,
            pauses=progress.pauses,
            paused=progress.paused,
            left_s=round(progress.left_s, 1),
        )

    def _run(self) -> None:
        due_s = monotonic() + EVERY_S
        while not self._stopping.wait(max(0.0, due_s - monotonic())):
            due_s = max(due_s + EVERY_S, monotonic())
            try:
                frame = self.take()
                for tell in self.told:
                    tell(frame)
            except Exception:
                log.exception("a frame was not taken")
