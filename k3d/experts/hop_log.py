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


class HopLog:
    """Writers append; readers copy. A hop of several rows (a prompt chunk) counts, but only
    hops of one row enter the percentiles: they are what a token waits for."""

    def __init__(self, tiers: tuple[str, ...]) -> None:
        self.tiers = tiers
        self._rings = [array("q", bytes(8 * RING)) for _ in tiers]
        self._single = [0] * len(tiers)
        self._hops = [0] * len(tiers)
        self._rows = [0] * len(tiers)
        self._experts = [0] * len(tiers)
        self._sum_ns = [0] * len(tiers)
        self._compute_ns = [0] * len(tiers)

    def note(self, tier: int, elapsed_ns: int, compute_ns: int, rows: int, experts: int) -> None:
        """Count one hop of `rows` rows that asked `tier` for `experts` experts."""
        self._hops[tier] += 1
        self._rows[tier] += rows
        self._experts[tier] += experts
        self._sum_ns[tier] += elapsed_ns
        self._compute_ns[tier] += compute_ns
        if rows == 1:
            self._rings[tier][self._single[tier] % RING] = elapsed_ns
            self._single[tier] += 1

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
