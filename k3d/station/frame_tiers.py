"""The tiers of a frame: what each was asked for over the interval, and how long that took."""

from __future__ import annotations

from k3d.experts.hop_log import HopFigures
from k3d.station.assembly import Station
from k3d.store.frame import TierFrame


class TierWatch:
    """Two looks give the hops between them; one thread looks."""

    def __init__(self, station: Station, most_rows: int) -> None:
        """`most_rows`: hops of more rows, those of prompts, are counted and not timed."""
        self._station = station
        self._most_rows = most_rows
        self._simulated = {t.name: n.simulated for n in station.pod.nodes for t in n.tiers}
        self._before = self._totals()

    def look(self, interval_s: float) -> tuple[TierFrame, ...]:
        before, now = self._before, self._totals()
        self._before = now
        chosen = sum(a.experts - b.experts for a, b in zip(now, before, strict=True))
        pairs = enumerate(zip(now, before, strict=True))
        return tuple(self._tier(index, a, b, chosen, interval_s) for index, (a, b) in pairs)

    def _tier(
        self, index: int, now: HopFigures, before: HopFigures, chosen: int, interval_s: float
    ) -> TierFrame:
        station, hops = self._station, now.hops - before.hops
        window = station.hops.window(index, before.hops, self._most_rows)
        busy_s = (now.sum_us - before.sum_us) / 1e6
        return TierFrame(
            name=now.tier,
            experts=station.placement.counts[now.tier],
            slots=station.slots[now.tier],
            hit_share=round((now.experts - before.experts) / chosen, 4) if chosen else None,
            hop_p50_us=_rounded(window.p50_us),
            hop_p99_us=_rounded(window.p99_us),
            hops=hops,
            busy_share=min(1.0, round(busy_s / interval_s, 4)) if hops and interval_s > 0 else None,
            simulated=self._simulated[now.tier],
        )

    def _totals(self) -> list[HopFigures]:
        """Totals since the start; their percentiles are not looked at, so of as few as may be."""
        log = self._station.hops
        return [log.figures(tier, since=log.count(tier)) for tier in range(len(log.tiers))]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
