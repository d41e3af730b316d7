"""What a swap did to hops: percentiles before it, during it and after it, as measured."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from k3d.experts.hop_log import RING, HopLog
from k3d.store.swaps import SwapEffect

AFTER_HOPS = 512
AFTER_S = 10.0
LOOK_S = 0.2


class EffectMeter:
    """Made when a swap begins. Hops of at most `most_rows` rows count: those of decoding lanes."""

    def __init__(self, hops: HopLog, most_rows: int) -> None:
        self._hops = hops
        self._most_rows = most_rows
        self._begun = self._counts()
        self._ended = self._begun
        self._before = self._effects("before", [count - RING for count in self._begun])

    def until_now(self) -> list[SwapEffect]:
        """Before and during the swap, which ends now."""
        self._ended = self._counts()
        return [*self._before, *self._effects("during", self._begun)]

    def wait_for_more(self, elsewhere: Callable[[float], bool]) -> None:
        """Wait for hops after the swap, until `elsewhere(seconds)` says that it is enough."""
        until_s = monotonic() + AFTER_S
        while monotonic() < until_s:
            newer = [now - then for now, then in zip(self._counts(), self._ended, strict=True)]
            if max(newer) >= AFTER_HOPS or elsewhere(LOOK_S):
                return

    def after(self) -> list[SwapEffect]:
        return self._effects("after", self._ended)

    def _counts(self) -> list[int]:
        return [self._hops.count(tier) for tier in range(len(self._hops.tiers))]

    def _effects(self, moment: str, since: list[int]) -> list[SwapEffect]:
        found = []
        for tier, name in enumerate(self._hops.tiers):
            window = self._hops.window(tier, max(0, since[tier]), self._most_rows)
            found.append(
                SwapEffect(name, moment, window.hops, window.p50_us, window.p99_us, "measured")
            )
        return found
