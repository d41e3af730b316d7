"""What a swap did to hops: percentiles before it, during it and after it, as measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from k3d.experts.hop_log import HopLog
from k3d.store.swaps import SwapEffect

AFTER_HOPS = 512
AFTER_S = 10.0
"""From the first hop after the swap on: a pod that nobody asks has no hops to measure."""
LOOK_S = 0.2


class EffectMeter:
    """Made when a swap begins. Hops of at most `most_rows` rows count: those of decoding lanes."""

    def __init__(
        self, hops: HopLog, most_rows: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._hops = hops
        self._most_rows = most_rows
        self._clock = clock
        self._begun = self._counts()
        self._ended = self._begun
        self._before = self._effects("before", hops.turned)  # of the map that the swap leaves

    def until_now(self) -> list[SwapEffect]:
        """Before and during the swap, which ends now."""
        self._ended = self._counts()
        return [*self._before, *self._effects("during", self._begun)]

    def wait_for_more(self, elsewhere: Callable[[float], bool]) -> None:
        """Wait for hops after the swap, until they are many or AFTER_S old, or until
        `elsewhere(seconds)` says that it is enough."""
        first_s = None
        while not elsewhere(LOOK_S):
            newer = [now - then for now, then in zip(self._counts(), self._ended, strict=True)]
            if max(newer) and first_s is None:
                first_s = self._clock()
            aged = first_s is not None and self._clock() - first_s >= AFTER_S
            if aged or max(newer) >= AFTER_HOPS:
                return

    def after(self) -> list[SwapEffect]:
        return self._effects("after", self._ended)

    def _counts(self) -> list[int]:
        return [self._hops.count(tier) for tier in range(len(self._hops.tiers))]

    def _effects(self, moment: str, since: Sequence[int]) -> list[SwapEffect]:
        found = []
        for tier, name in enumerate(self._hops.tiers):
            window = self._hops.window(tier, since[tier], self._most_rows)
            found.append(
                SwapEffect(name, moment, window.hops, window.p50_us, window.p99_us, "measured")
            )
        return found
