"""What is known of one spark and of the way there: written by whoever learns it, read by anyone."""

from __future__ import annotations

from time import monotonic

from k3d.fabric.control import Counters
from k3d.fabric.facts import Facts, StagedBank
from k3d.station.hop import Hop
from k3d.station.link_state import LinkSnapshot, LinkTimes, Standing
from k3d.station.spark_fill import SparkFill


class LinkFigures:
    """Everything is None until it was learned. Every figure is one assignment, so that a reader in
    another thread sees an old one or a new one."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.version: str | None = None
        self.staged: StagedBank | None = None
        """As the spark said when it joined."""
        self.fill: SparkFill | None = None
        """None where it held its slices when it joined."""
        self.loaded = 0
        self.joins = 0
        """Times it became ready; a swap's copies last for one of them."""
        self.progress_s: float | None = None
        """When it last did something, by the monotonic clock."""
        self.rtt_ns: int | None = None
        self.hop_ns: int | None = None
        """From the beginning to the end of the last hop."""
        self.hop_layer = 0
        self.compute_ns: int | None = None
        self.counted_s: float | None = None
        self._counters: Counters | None = None

    @property
    def idle_s(self) -> float:
        """Since it last did something."""
        return monotonic() - (self.progress_s or 0.0)

    @property
    def counters_age_s(self) -> float:
        return monotonic() - (self.counted_s or 0.0)

    def count(self, counters: Counters, rtt_ns: int) -> None:
        """What a PONG said, and how long that took."""
        self.rtt_ns = rtt_ns
        self.counted_s = monotonic()
        self._counters, self.loaded = counters, counters.loaded

    def snapshot(
        self, facts: Facts, standing: Standing, hop: Hop | None, times: LinkTimes
    ) -> LinkSnapshot:
        """All of it, now; `hop` is the dispatch without an answer."""
        counters, counted_s, progress_s, fill = (
            self._counters, self.counted_s, self.progress_s, self.fill,
        )  # fmt: skip
        waiting_s = hop.age_ns / 1e9 if hop is not None else None
        reason = str(standing) if standing.reason else None
        if standing.state == "ready" and waiting_s is not None and waiting_s > times.late_s:
            reason = f"{self._node} has not answered layer {self.hop_layer} for {waiting_s:.1f} s"
        return LinkSnapshot(
            node=self._node,
            state=standing.state,
            reason=reason,
            slice_index=facts.slice_index,
            slice_count=facts.slice_count,
            slots=facts.slots,
            loaded=self.loaded,
            epoch=facts.epoch if standing.state == "ready" else None,
            progress_age_s=None if progress_s is None else monotonic() - progress_s,
            waiting_s=waiting_s,
            rtt_us=_microseconds(self.rtt_ns),
            hop_us=_microseconds(self.hop_ns),
            compute_us=_microseconds(self.compute_ns),
            pid=counters.pid if counters else None,
            rss_bytes=counters.rss_bytes if counters else None,
            served_dispatches=counters.served_dispatches if counters else None,
            served_rows=counters.served_rows if counters else None,
            version=self.version,
            sensors=counters.sensors if counters else None,
            counters_age_s=None if counted_s is None else monotonic() - counted_s,
            joins=self.joins,
            staged=self.staged,
            filling=fill.count if fill is not None else None,
        )


def _microseconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1000
