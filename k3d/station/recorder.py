"""The recorder: every ten seconds, what the hops and passes took goes to telemetry.db."""

from __future__ import annotations

import logging
import threading
import time

from k3d.engine.engine import EngineCounts
from k3d.errors import StoreError
from k3d.experts.hop_log import HopFigures, HopLog
from k3d.station.scheduler import Scheduler
from k3d.store.telemetry import RETENTION, HopRollup, TelemetryStore, TokenRollup

ROLL_UP_EVERY = 60  # buckets

log = logging.getLogger(__name__)


class Recorder:
    """One thread; a bucket that cannot be written is logged and lost, nothing else is."""

    def __init__(self, store: TelemetryStore, hops: HopLog, scheduler: Scheduler) -> None:
        self._store = store
        self._hops = hops
        self._scheduler = scheduler
        self._before_hops = self._figures()
        self._before = scheduler.counts()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=3.0)
        self._store.close()

    def _run(self) -> None:
        buckets = 0
        while not self._stopping.wait(RETENTION[0].span_s):
            self.record()
            buckets += 1
            if buckets % ROLL_UP_EVERY == 0:
                self._try(self._store.roll_up)
        self.record()

    def record(self) -> None:
        """Write what happened since the last call."""
        span = RETENTION[0].span_s
        bucket_s = int(time.time()) // span * span
        before = self._before_hops
        after = self._figures([f.single_row_hops for f in before])
        hops = [_hop(bucket_s, a, b) for a, b in zip(after, before, strict=True) if a.hops > b.hops]
        counts = self._scheduler.counts()
        tokens = _tokens(bucket_s, counts, self._before)
        self._before_hops, self._before = after, counts
        if hops or tokens:
            self._try(lambda: self._store.record(hops=hops, tokens=tokens))

    def _figures(self, since: list[int] | None = None) -> list[HopFigures]:
        tiers = range(len(self._hops.tiers))
        return [self._hops.figures(tier, since[tier] if since else 0) for tier in tiers]

    def _try(self, write: object) -> None:
        assert callable(write)
        try:
            write()
        except StoreError as error:
            log.error("telemetry was not written: %s", error)


def _hop(bucket_s: int, after: HopFigures, before: HopFigures) -> HopRollup:
    return HopRollup(
        bucket_s=bucket_s,
        tier=after.tier,
        node="pod" if after.tier == "spark" else "station",
        count=after.hops - before.hops,
        sum_us=after.sum_us - before.sum_us,
        p50_us=_whole(after.p50_us),
        p99_us=_whole(after.p99_us),
        rows=after.rows - before.rows,
        compute_us=after.compute_us - before.compute_us,
    )


def _whole(microseconds: float | None) -> int | None:
    return None if microseconds is None else round(microseconds)


def _tokens(bucket_s: int, now: EngineCounts, before: EngineCounts) -> list[TokenRollup]:
    requests = now.finished + now.failed - before.finished - before.failed
    kinds = (
        ("decode", now.decode_tokens - before.decode_tokens, now.decode_s - before.decode_s),
        ("prompt", now.prompt_tokens - before.prompt_tokens, now.prompt_s - before.prompt_s),
    )
    return [
        TokenRollup(bucket_s, kind, tokens, round(seconds * 1e6), requests)
        for kind, tokens, seconds in kinds
        if tokens
    ]
