"""Latency of every hop, kept off the token path: one ring of integers a tier."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

RING = 4096


@dataclass(frozen=True)
class HopFigures:
    """One tier: totals since start, and percentiles over at most RING hops of one row.

    `compute_us` is what the slowest node of each hop spent computing, summed.
    """

    tier: str
    hops: int
    single_row_hops: int
    rows: int
    experts: int
    sum_us: int
    compute_us: int
    p50_us: float | None
    p99_us: float | None


@dataclass(frozen=True)
class HopWindow:
    """Percentiles of a tier's newest hops; None of none."""

    hops: int
    p50_us: float | None
    p99_us: float | None


class HopLog:
    """Writers append; readers copy. A hop of several rows (a prompt chunk) counts, but only
    hops of one row enter the figures' percentiles: they are what a token waits for. A window
    takes hops of as many rows as it is asked for: of lanes that decode together, for one."""

    def __init__(self, tiers: tuple[str, ...]) -> None:
        self.tiers = tiers
        self._rings = [array("q", bytes(8 * RING)) for _ in tiers]
        self._every = [array("q", bytes(8 * RING)) for _ in tiers]
        self._every_rows = [array("q", bytes(8 * RING)) for _ in tiers]
        self._single = [0] * len(tiers)
        self._hops = [0] * len(tiers)
        self._rows = [0] * len(tiers)
        self._experts = [0] * len(tiers)
        self._sum_ns = [0] * len(tiers)
        self._compute_ns = [0] * len(tiers)
        self._turned = tuple(self._hops)

    def turn(self) -> None:
        """Another map is in force from now on."""
        self._turned = tuple(self._hops)

    @property
    def turned(self) -> tuple[int, ...]:
        """Hops of each tier before the map in force was."""
        return self._turned

    def note(self, tier: int, elapsed_ns: int, compute_ns: int, rows: int, experts: int) -> None:
        """Count one hop of `rows` rows that asked `tier` for `experts` experts."""
        place = self._hops[tier] % RING
        self._every[tier][place] = elapsed_ns
        self._every_rows[tier][place] = rows
        self._hops[tier] += 1
        self._rows[tier] += rows
        self._experts[tier] += experts
        self._sum_ns[tier] += elapsed_ns
        self._compute_ns[tier] += compute_ns
        if rows == 1:
            self._rings[tier][self._single[tier] % RING] = elapsed_ns
            self._single[tier] += 1

    def count(self, tier: int) -> int:
        """Hops since start."""
        return self._hops[tier]

    def window(self, tier: int, since: int, most_rows: int) -> HopWindow:
        """Hops after the first `since` of at most `most_rows` rows, the newest RING of them."""
        count = self._hops[tier]
        every, rows = self._every[tier], self._every_rows[tier]
        places = (i % RING for i in range(max(since, count - RING), count))
        window = sorted(every[place] / 1000 for place in places if rows[place] <= most_rows)
        return HopWindow(len(window), _quantile(window, 0.50), _quantile(window, 0.99))

    def figures(self, tier: int, since: int = 0) -> HopFigures:
        """Figures of a tier; percentiles are of its single-row hops after the first `since`."""
        count = self._single[tier]
        newest = min(count - since, RING)
        ring = self._rings[tier]
        window = sorted(ring[i % RING] / 1000 for i in range(count - newest, count))
        return HopFigures(
            tier=self.tiers[tier],
            hops=self._hops[tier],
            single_row_hops=count,
            rows=self._rows[tier],
            experts=self._experts[tier],
            sum_us=self._sum_ns[tier] // 1000,
            compute_us=self._compute_ns[tier] // 1000,
            p50_us=_quantile(window, 0.50),
            p99_us=_quantile(window, 0.99),
        )


def _quantile(ordered: list[float], share: float) -> float | None:
    """Nearest-rank quantile; None of nothing."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
