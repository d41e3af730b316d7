"""What the newest hops to one spark took: integers in a ring, written by the engine's thread."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

RING = 1024


@dataclass(frozen=True)
class NodeHops:
    """The hops of one spark over a stretch. Times in microseconds; None of no hops.

    `compute_us` is the spark's own mean a dispatch.
    """

    hops: int
    p50_us: float | None = None
    p99_us: float | None = None
    compute_us: float | None = None


class HopRing:
    """One writer, any reader; a reader may miss a hop that is being written."""

    def __init__(self) -> None:
        self.count = 0
        """Hops since the start."""
        self._took_ns = array("q", bytes(8 * RING))
        self._compute_ns = array("q", bytes(8 * RING))
        self._rows = array("q", bytes(8 * RING))

    def note(self, took_ns: int, compute_ns: int, rows: int) -> None:
        place = self.count % RING
        self._took_ns[place] = took_ns
        self._compute_ns[place] = compute_ns
        self._rows[place] = rows
        self.count += 1

    def since(self, before: int, until: int, most_rows: int) -> NodeHops:
        """Hops from number `before` to `until`; figures are of those of at most `most_rows` rows,
        the newest RING of them."""
        places = [number % RING for number in range(max(before, until - RING), until)]
        kept = [place for place in places if self._rows[place] <= most_rows]
        if not kept:
            return NodeHops(until - before)
        took = sorted(self._took_ns[place] for place in kept)
        compute_ns = sum(self._compute_ns[place] for place in kept)
        last = len(took) - 1
        return NodeHops(
            hops=until - before,
            p50_us=took[min(last, len(took) // 2)] / 1000,
            p99_us=took[min(last, int(0.99 * len(took)))] / 1000,
            compute_us=compute_ns / len(kept) / 1000,
        )
