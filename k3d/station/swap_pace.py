"""How fast a swap may copy: bytes a second at most, and not while hops take longer for it.

Hops that nothing disturbs say what is usual: those before the swap, and those of every pause. The
guard compares the newest hops with them and asks for a pause when they are much slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from k3d.duration import duration_us
from k3d.experts.hop_log import HopLog, HopWindow
from k3d.station.swap_progress import SwapProgress

FACTOR = 2.0
FLOOR_US = 200.0
"""Differences below this are not worth a pause."""
LEAST_HOPS = 32
MOST_HOPS = 256
REST_S = 0.25
FIRST_BATCH_BYTES = 16 * 1024
LARGEST_BATCH_BYTES = 256 * 1024
SMALLEST_BATCH_BYTES = 1024
BATCH_NS = 4_000_000
"""A spark serves nothing while it takes a batch."""


class Halted(Exception):
    """The swap is to stop where it is: aborted, or the Station ends."""


class RateLimit:
    """Bytes a second, over any stretch of time longer than one batch."""

    def __init__(self, bytes_per_s: int, clock: Callable[[], float] = monotonic) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._free_s = clock()

    def wait_s(self) -> float:
        """How long the next batch has to wait."""
        return max(0.0, self._free_s - self._clock())

    def pay(self, size_bytes: int) -> None:
        """Note a batch that is sent now."""
        self._free_s = max(self._free_s, self._clock()) + size_bytes / self._bytes_per_s


class LatencyGuard:
    """p99 of every tier's hops of at most `most_rows` rows, now and undisturbed."""

    def __init__(self, hops: HopLog, most_rows: int) -> None:
        self._hops = hops
        self._most_rows = most_rows
        self._since = [0] * len(hops.tiers)
        self._usual: list[float | None] = [None] * len(hops.tiers)
        self.rested()

    def trouble(self) -> str | None:
        """Why a pause is needed, or None."""
        for tier, usual in enumerate(self._usual):
            window = self._window(tier)
            if usual is None or window.p99_us is None or window.hops < LEAST_HOPS:
                continue
            if window.p99_us > FACTOR * usual + FLOOR_US:
                return (
                    f"hops to {self._hops.tiers[tier]} take {duration_us(window.p99_us)} (p99), "
                    f"{duration_us(usual)} without the swap"
                )
        return None

    def rest(self) -> None:
        """From now on nothing is copied."""
        self._since = [self._hops.count(tier) for tier in range(len(self._since))]

    def enough_rest(self) -> bool:
        """Whether some tier's hops since then say what is usual."""
        return any(self._window(tier).hops >= LEAST_HOPS for tier in range(len(self._since)))

    def rested(self) -> None:
        """Take the hops since `rest` for usual; copying goes on."""
        for tier in range(len(self._since)):
            window = self._window(tier)
            if window.hops >= LEAST_HOPS:
                self._usual[tier] = window.p99_us
        self.rest()

    def _window(self, tier: int) -> HopWindow:
        since = max(self._since[tier], self._hops.count(tier) - MOST_HOPS)
        return self._hops.window(tier, since, self._most_rows)


class Pace:
    """Waits before every batch of one swap. `halt` ends a wait, and then the swap."""

    def __init__(
        self, rate: RateLimit, guard: LatencyGuard, halt: threading.Event, progress: SwapProgress
    ) -> None:
        self._rate = rate
        self._guard = guard
        self._halt = halt
        self._progress = progress
        self.batch_bytes = FIRST_BATCH_BYTES

    def before(self, size_bytes: int) -> None:
        """Return when the next batch may be copied. Raises Halted."""
        reason = self._guard.trouble()
        if reason is not None:
            self._rest(reason)
        self._wait(self._rate.wait_s())
        self._rate.pay(size_bytes)

    def took(self, time_ns: int) -> None:
        """A spark's time for the last batch: the next are smaller if it was long."""
        if time_ns > BATCH_NS:
            self._shrink()
        elif time_ns < BATCH_NS // 2:
            self.batch_bytes = min(LARGEST_BATCH_BYTES, self.batch_bytes + self.batch_bytes // 4)

    def hold(self, reason: str, time_s: float) -> None:
        """Pause for a reason that is not the pace's own. Raises Halted."""
        self._progress.pause(reason)
        try:
            self._wait(time_s)
        finally:
            self._progress.paused = None

    def check(self) -> None:
        """Raises Halted when the swap is to stop."""
        self._wait(0.0)

    def _rest(self, reason: str) -> None:
        """Smaller batches from now on, after a pause in which hops show what is usual."""
        self._shrink()
        self._guard.rest()
        until_s = monotonic() + REST_S
        self._progress.pause(reason)
        try:
            while monotonic() < until_s and not self._guard.enough_rest():
                self._wait(REST_S / 10)
        finally:
            self._progress.paused = None
        self._guard.rested()

    def _shrink(self) -> None:
        self.batch_bytes = max(SMALLEST_BATCH_BYTES, self.batch_bytes // 2)

    def _wait(self, time_s: float) -> None:
        if self._halt.is_set() or (time_s > 0 and self._halt.wait(time_s)):
            raise Halted
