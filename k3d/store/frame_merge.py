"""Several frames in a row as one that stands for all of them: means of what flows, extremes of what
hurts.

Rates, watts, clocks and medians are means over time; 99th percentiles, temperatures and memory in
use are the largest; what is free is the smallest. The worst state is kept with its reason, and
whatever needed attention. Counts since the start, names and lanes are those of the last frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from k3d.store.frame import Accelerator, Attention, Frame, NodeFrame, Sensors, TierFrame

STATES = ("healthy", "unknown", "degraded", "down")
SEVERITIES = ("note", "warning", "alert")
MOST_ATTENTION = 64

Part = Any  # one struct of a frame
Merge = Callable[[Sequence[Part], str, Sequence[float]], Any]


def merge(frames: Sequence[Frame]) -> Frame:
    """One frame of at least one, oldest first; its `interval_s` is the sum of theirs."""
    if len(frames) == 1:
        return frames[0]
    last, weights = frames[-1], [frame.interval_s for frame in frames]
    worst = _worst(frames)
    return msgspec.structs.replace(
        _merged(frames, weights, _FRAME),
        interval_s=round(sum(weights), 3),
        state=worst.state,
        reason=worst.reason,
        nodes=tuple(_node(frames, node.name) for node in last.nodes),
        tiers=tuple(_tier(frames, tier.name) for tier in last.tiers),
        attention=_attention(frames),
        provenance=last.provenance,
    )


def _known(parts: Sequence[Part], name: str) -> list[Any]:
    values = (getattr(part, name) for part in parts)
    return [value for value in values if value is not None]


def _largest(parts: Sequence[Part], name: str, _weights: Sequence[float]) -> Any:
    return max(_known(parts, name), default=None)


def _smallest(parts: Sequence[Part], name: str, _weights: Sequence[float]) -> Any:
    return min(_known(parts, name), default=None)


def _newest(parts: Sequence[Part], name: str, _weights: Sequence[float]) -> Any:
    known = _known(parts, name)
    return known[-1] if known else None


def _sum(parts: Sequence[Part], name: str, _weights: Sequence[float]) -> Any:
    return sum(_known(parts, name))


def _mean(parts: Sequence[Part], name: str, weights: Sequence[float]) -> float | None:
    """Over the time in which it is known."""
    pairs = [
        (getattr(part, name), weight)
        for part, weight in zip(parts, weights, strict=True)
        if getattr(part, name) is not None
    ]
    whole = sum(weight for _, weight in pairs)
    if not pairs or whole <= 0:
        return pairs[-1][0] if pairs else None
    return _figure(sum(value * weight for value, weight in pairs) / whole)


def _rate(parts: Sequence[Part], name: str, weights: Sequence[float]) -> float | None:
    """Over the whole time: where there was none, it was 0. None where there was none at all."""
    values = [getattr(part, name) for part in parts]
    whole = sum(weights)
    if whole <= 0 or all(value is None for value in values):
        return None
    pairs = zip(values, weights, strict=True)
    return _figure(sum((value or 0.0) * weight for value, weight in pairs) / whole)


def _figure(value: float) -> float:
    """A mean is worth five digits of room."""
    return float(f"{value:.5g}")


def _every(parts: Sequence[Part], name: str, _weights: Sequence[float]) -> Any:
    """Of tuples: all that was in any, each once."""
    return tuple(dict.fromkeys(each for part in parts for each in getattr(part, name)))


_FRAME: dict[str, Merge] = {
    "decode_tokens_per_s": _rate,
    "prompt_tokens_per_s": _rate,
    "token_p50_us": _mean,
    "token_p99_us": _largest,
    "acceptance_length": _mean,
    "prefix_hit_share": _mean,
    "running": _largest,
    "waiting": _largest,
    "free_pages": _smallest,
    "swap": _newest,
}
_NODE: dict[str, Merge] = {
    "rss_bytes": _largest,
    "progress_age_s": _largest,
    "rtt_us": _mean,
    "hop_p50_us": _mean,
    "hop_p99_us": _largest,
    "compute_us": _mean,
    "hops": _sum,
}
_TIER: dict[str, Merge] = {
    "hit_share": _mean,
    "hop_p50_us": _mean,
    "hop_p99_us": _largest,
    "hops": _sum,
    "busy_share": _rate,
}
_SENSORS: dict[str, Merge] = {
    "age_s": _largest,
    "power_w": _mean,
    "temperature_c": _largest,
    "clock_mhz": _mean,
    "busy_share": _mean,
    "memory_used_bytes": _largest,
    "swap_used_bytes": _largest,
    "disk_free_bytes": _smallest,
}
_ACCELERATOR: dict[str, Merge] = {
    "power_w": _mean,
    "temperature_c": _largest,
    "clock_mhz": _mean,
    "memory_used_bytes": _largest,
    "busy_share": _mean,
    "throttled": _every,
}


def _merged(parts: Sequence[Part], weights: Sequence[float], how: dict[str, Merge]) -> Part:
    """The last part, with the fields that `how` names made of all."""
    made = {name: merge_field(parts, name, weights) for name, merge_field in how.items()}
    return msgspec.structs.replace(parts[-1], **made)


def _node(frames: Sequence[Frame], name: str) -> NodeFrame:
    pairs = [(node, f.interval_s) for f in frames for node in f.nodes if node.name == name]
    parts, weights = [node for node, _ in pairs], [weight for _, weight in pairs]
    worst = _worst(parts)
    read = [(n.sensors, weight) for n, weight in pairs if n.sensors is not None]
    return msgspec.structs.replace(
        _merged(parts, weights, _NODE),
        state=worst.state,
        reason=worst.reason,
        link=worst.link,
        sensors=_sensors([s for s, _ in read], [weight for _, weight in read]) if read else None,
    )


def _sensors(parts: Sequence[Sensors], weights: Sequence[float]) -> Sensors:
    merged = _merged(parts, weights, _SENSORS)
    found = tuple(_accelerator(parts, weights, at) for at in range(len(merged.accelerators)))
    return msgspec.structs.replace(merged, accelerators=found)


def _accelerator(parts: Sequence[Sensors], weights: Sequence[float], at: int) -> Accelerator:
    """Those at one place; where a device was lost, of the times that had it."""
    there = [at < len(each.accelerators) for each in parts]
    devices = [each.accelerators[at] for each, has in zip(parts, there, strict=True) if has]
    kept = [weight for weight, has in zip(weights, there, strict=True) if has]
    return _merged(devices, kept, _ACCELERATOR)


def _tier(frames: Sequence[Frame], name: str) -> TierFrame:
    pairs = [(tier, f.interval_s) for f in frames for tier in f.tiers if tier.name == name]
    return _merged([tier for tier, _ in pairs], [weight for _, weight in pairs], _TIER)


def _worst(parts: Iterable[Part]) -> Part:
    """The newest of those in the worst state."""
    return max(reversed(list(parts)), key=lambda part: STATES.index(part.state))


def _attention(frames: Sequence[Frame]) -> tuple[Attention, ...]:
    """What was there in any: of one matter, the worst and among those the newest."""
    found: dict[tuple[str, str], Attention] = {}
    for frame in frames:
        for each in frame.attention:
            matter = (each.subject, each.kind or each.sentence)
            known = found.get(matter)
            if known is None or _rank(each) >= _rank(known):
                found[matter] = each
    ordered = sorted(found.values(), key=_rank, reverse=True)
    return tuple(ordered[:MOST_ATTENTION])


def _rank(each: Attention) -> int:
    return SEVERITIES.index(each.severity)
