"""Hops over time: by tier and by node from the frames, from the roll-ups where there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from k3ctl.client.records import Records
from k3ctl.client.series import Chart, Series, Timeline, from_buckets
from k3d.errors import ConfigError, NotFound
from k3d.store.frame import TierFrame
from k3d.store.telemetry import HopRollup

NODE_FIGURES = (
    ("hop p50", "hop_p50_us"),
    ("hop p99", "hop_p99_us"),
    ("compute", "compute_us"),
    ("round trip", "rtt_us"),
)


def hop_charts(records: Records, width_s: int, node: str | None, tier: str | None) -> list[Chart]:
    """p50 and p99 of hops: of every tier, of one tier, or of one node. `width_s` is the bucket of
    roll-ups. Raises NotFound for a name that was not recorded."""
    if node is not None and tier is not None:
        raise ConfigError("--node and --tier both say whose hops", hint="give one of them")
    if node is not None:
        return [_of_node(records, node)]
    tiers = list(dict.fromkeys(tier.name for f in records.frames[-1:] for tier in f.tiers))
    tiers = list(dict.fromkeys([*tiers, *(hop.tier for hop in records.hops)]))
    line = _of_frames(records) if counted_in_frames(records) else _of_rollups(records, width_s)
    if tier is not None:
        if tier not in tiers:
            raise NotFound(
                f"no tier {tier!r} was recorded then", hint=f"tiers: {', '.join(tiers) or 'none'}"
            )
        lines = (line(tier, "p50", "p50"), line(tier, "p99", "p99"))
        return [Chart("hop", f"hops of {tier}", "us", lines)]
    return [
        Chart("hop_p50", "hop, median", "us", tuple(line(name, name, "p50") for name in tiers)),
        Chart("hop_p99", "hop, p99", "us", tuple(line(name, name, "p99") for name in tiers)),
    ]


def counted_in_frames(records: Records) -> bool:
    """Whether the frames have hops of tiers; a home of before frames has only roll-ups."""
    return any(tier.hop_p50_us is not None for frame in records.frames for tier in frame.tiers)


Line = Callable[[str, str, str], Series]
"""A tier's p50 or p99 under a name: (tier, name, figure)."""


def _of_frames(records: Records) -> Line:
    timeline = Timeline(records.frames)
    moments = [{tier.name: tier for tier in frame.tiers} for frame in records.frames]
    said = records.frames[-1].provenance

    def line(tier: str, name: str, figure: str) -> Series:
        found: Sequence[TierFrame | None] = [moment.get(tier) for moment in moments]
        values = [None if f is None else getattr(f, f"hop_{figure}_us") for f in found]
        return timeline.series(name, values, said)

    return line


def _of_rollups(records: Records, width_s: int) -> Line:
    figures = {"p50": _mean_p50, "p99": _largest_p99}

    def line(tier: str, name: str, figure: str) -> Series:
        grouped: dict[int, list[HopRollup]] = {}
        for hop in records.hops:
            if hop.tier == tier and hop.count > 0:
                grouped.setdefault(hop.bucket_s // width_s, []).append(hop)
        found = {number: figures[figure](hops) for number, hops in grouped.items()}
        values = {number: value for number, value in found.items() if value is not None}
        return from_buckets(name, records.shown, width_s, values)

    return line


def _mean_p50(hops: Iterable[HopRollup]) -> float | None:
    """The mean of the medians, weighted by hops."""
    known = [(hop.p50_us, hop.count) for hop in hops if hop.p50_us is not None]
    total = sum(count for _, count in known)
    return sum(p50 * count for p50, count in known) / total if total else None


def _largest_p99(hops: Iterable[HopRollup]) -> float | None:
    return max((float(hop.p99_us) for hop in hops if hop.p99_us is not None), default=None)


def _of_node(records: Records, name: str) -> Chart:
    names = list(dict.fromkeys(node.name for frame in records.frames for node in frame.nodes))
    if name not in names:
        raise NotFound(
            f"no node {name!r} was recorded then", hint=f"nodes: {', '.join(names) or 'none'}"
        )
    said = records.frames[-1].provenance
    found = [next((n for n in frame.nodes if n.name == name), None) for frame in records.frames]
    timeline = Timeline(records.frames)
    series = tuple(
        timeline.series(label, [None if n is None else getattr(n, key) for n in found], said)
        for label, key in NODE_FIGURES
    )
    return Chart("hop", f"hops of {name}", "us", series)
