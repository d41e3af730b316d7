"""The time between two tokens of one lane, as the engine commits them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from time import monotonic_ns

from k3d.engine.pass_plan import Part

RING = 4096
MOST_LANES = 4096
"""Lanes whose last token is remembered; more are those of lanes that ended."""


class TokenGaps:
    """A ring of gaps. The tokens of one round come together and share its time."""

    def __init__(self) -> None:
        self.count = 0
        """Gaps since the start."""
        self._gaps_ns = array("q", bytes(8 * RING))
        self._last_ns: dict[int, int] = {}  # by a sequence's number of arrival

    def note(self, parts: Sequence[Part], used: Sequence[int]) -> None:
        """After a pass, in the engine's thread."""
        now = monotonic_ns()
        for part, count in zip(parts, used, strict=True):
            arrival = part.sequence.arrival
            last = self._last_ns.get(arrival)
            if part.draft is not None and count and last is not None:
                for _ in range(count):
                    self._gaps_ns[self.count % RING] = (now - last) // count
                    self.count += 1
            if count and part.sequence.written:
                self._last_ns[arrival] = now
        if len(self._last_ns) > MOST_LANES:
            for arrival in sorted(self._last_ns)[: MOST_LANES // 2]:
                del self._last_ns[arrival]

    def since(self, before: int, until: int) -> tuple[float | None, float | None]:
        """p50 and p99 in microseconds of the gaps from number `before` to `until`, the newest RING
        of them; None of none."""
        numbers = range(max(before, until - RING), until)
        gaps = sorted(self._gaps_ns[number % RING] for number in numbers)
        if not gaps:
            return None, None
        last = len(gaps) - 1
        return gaps[min(last, len(gaps) // 2)] / 1000, gaps[min(last, int(0.99 * len(gaps)))] / 1000
