"""The nodes of a frame: what the Station knows of itself and of each spark, and their hops over
the interval."""

from __future__ import annotations

import os

import msgspec
import psutil

from k3d import __version__
from k3d.placement.pod import SPARK_TIER
from k3d.station.assembly import Station
from k3d.station.hop_ring import NodeHops
from k3d.station.link_state import LinkSnapshot
from k3d.station.membership import SparkLink
from k3d.station.scheduler import Scheduler
from k3d.store.frame import NodeFrame, Sensors, State

NO_HOPS = NodeHops(0)


class NodeWatch:
    """Two looks give the hops between them; one thread looks. Nothing here waits for a node."""

    def __init__(self, station: Station, scheduler: Scheduler, most_rows: int) -> None:
        """`most_rows`: hops of more rows, those of prompts, are counted and not timed."""
        self._station = station
        self._scheduler = scheduler
        self._most_rows = most_rows
        self._before = {link.node: link.hops.count for link in station.membership}
        self._process = psutil.Process()

    def look(
        self, state: State, reason: str | None, sensors: Sensors | None
    ) -> tuple[NodeFrame, ...]:
        """The Station, whose pod is in `state`, then the sparks by slice."""
        links = self._station.membership.links
        snapshots = [link.snapshot() for link in links]
        sparks = [self._spark(*each) for each in zip(links, snapshots, strict=True)]
        waiting = any(each.state != "ready" for each in snapshots)
        own = self._own("healthy" if waiting else state, None if waiting else reason, sensors)
        return (own, *sparks)

    def _own(self, state: State, reason: str | None, sensors: Sensors | None) -> NodeFrame:
        station = self._station
        node, counts = station.pod.station, station.placement.counts
        return NodeFrame(
            name=node.name,
            role="station",
            state=state,
            reason=reason,
            version=__version__,
            pid=os.getpid(),
            slots_used=sum(n for tier, n in counts.items() if tier != SPARK_TIER),
            slots=sum(n for tier, n in station.slots.items() if tier != SPARK_TIER),
            rss_bytes=self._process.memory_info().rss,
            progress_age_s=round(self._scheduler.progress_age_s, 3),
            simulated=node.simulated,
            sensors=sensors,
        )

    def _spark(self, link: SparkLink, now: LinkSnapshot) -> NodeFrame:
        hops = self._hops(link)
        ready = now.state == "ready"
        state: State = "down" if not ready else "healthy" if now.reason is None else "degraded"
        return NodeFrame(
            name=now.node,
            role="spark",
            state=state,
            reason=now.reason if ready else now.reason or f"{now.node} is {now.state}",
            link=now.state,
            version=now.version,
            pid=now.pid,
            slice=f"{(now.slice_index or 0) + 1}/{now.slice_count}",
            slots_used=now.loaded,
            slots=now.slots,
            rss_bytes=now.rss_bytes,
            progress_age_s=_rounded(now.progress_age_s, 3),
            rtt_us=_rounded(now.rtt_us),
            hop_p50_us=_rounded(hops.p50_us),
            hop_p99_us=_rounded(hops.p99_us),
            compute_us=_rounded(hops.compute_us),
            hops=hops.hops,
            bank=now.staged.file if now.staged is not None else None,
            filled_records=now.filling.filled if now.filling is not None else None,
            sent_records=now.filling.sent if now.filling is not None else None,
            simulated=self._station.pod.node(now.node).simulated,
            sensors=_sensors(now),
        )

    def _hops(self, link: SparkLink) -> NodeHops:
        before, count = self._before[link.node], link.hops.count
        self._before[link.node] = count
        return link.hops.since(before, count, self._most_rows) if count > before else NO_HOPS


def _sensors(now: LinkSnapshot) -> Sensors | None:
    """A spark's, as old as they are here."""
    sensors, since_s = now.sensors, now.counters_age_s
    if sensors is None or since_s is None:
        return None
    return msgspec.structs.replace(sensors, age_s=round(sensors.age_s + since_s, 3))


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)
