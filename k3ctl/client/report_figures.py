"""The figures of a report: what ran, how fast, and how long it was not well. From frames and
roll-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from k3ctl.client.records import Records
from k3ctl.client.sentence_kind import sentence_kind
from k3d.store.frame import Frame

COUNTS = ("finished", "failed", "refused", "preempted")


@dataclass(frozen=True)
class Spread:
    """A figure over the time in which it was known; None where it never was."""

    name: str
    unit: str
    p50: float | None
    p99: float | None
    least: float | None
    most: float | None
    provenance: str


@dataclass(frozen=True)
class TierSpeed:
    """Hops of one tier over the span: p50 is the mean of its frames' medians, weighted by their
    hops, p99 the largest of theirs, an upper bound."""

    tier: str
    hops: int
    p50_us: float | None
    p99_us: float | None
    hit_share: float | None
    simulated: bool
    provenance: str


@dataclass(frozen=True)
class Unwell:
    """How long a node, or the pod (node None), was in a state that is not healthy, without being
    healthy in between.

    `most_s` is an upper bound: a frame that stands for several seconds has their worst state.
    """

    node: str | None
    state: str
    most_s: float
    since_ms: int
    until_ms: int
    reason: str | None


@dataclass(frozen=True)
class Ran:
    """What ran. Seconds without a frame are `unrecorded_s`: the Station was down, or did not
    record."""

    pod: str
    model: str | None
    dtype: str | None
    transport: str | None
    versions: tuple[str, ...]
    nodes: int
    recorded_s: float
    unrecorded_s: float
    healthy_s: float
    coarsest_s: float
    """The longest stretch that one frame stands for."""
    requests: dict[str, int | None]
    """Finished, failed, refused, preempted; None where no frame counted them."""
    decode_tokens: int | None
    prompt_tokens: int | None
    simulated: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ran(records: Records, name: str) -> Ran:
    """`name` is the pod's, should no frame say it."""
    frames = records.frames
    last = frames[-1] if frames else None
    recorded = min(records.span.length_s, sum(frame.interval_s for frame in frames))
    counts = {
        key: growth(frames, lambda frame, key=key: getattr(frame, key)) if frames else None
        for key in COUNTS
    }
    return Ran(
        pod=last.pod if last is not None else name,
        model=last.model if last is not None else None,
        dtype=last.dtype if last is not None else None,
        transport=last.transport if last is not None else None,
        versions=tuple(dict.fromkeys(frame.version for frame in frames)),
        nodes=len(last.nodes) if last is not None else 0,
        recorded_s=round(recorded, 1),
        unrecorded_s=round(records.span.length_s - recorded, 1),
        healthy_s=round(sum(f.interval_s for f in frames if f.state == "healthy"), 1),
        coarsest_s=max((frame.interval_s for frame in frames), default=0.0),
        requests=counts,
        decode_tokens=_tokens(records, "decode"),
        prompt_tokens=_tokens(records, "prompt"),
        simulated=() if last is None else tuple(t.name for t in last.tiers if t.simulated),
    )


def spreads(records: Records) -> list[Spread]:
    """Rates and times over the span, of the frames in which there were any."""
    frames = records.frames
    said = frames[-1].provenance if frames else "measured"

    def of(name: str, unit: str, figure: Callable[[Frame], float | None]) -> Spread:
        known = [
            (value, frame.interval_s) for frame in frames if (value := figure(frame)) is not None
        ]
        values = [value for value, _ in known]
        return Spread(
            name,
            unit,
            weighted_quantile(known, 0.5),
            weighted_quantile(known, 0.99),
            min(values, default=None),
            max(values, default=None),
            said,
        )

    return [
        of("decoding", "tokens/s", lambda f: f.decode_tokens_per_s),
        of("reading prompts", "tokens/s", lambda f: f.prompt_tokens_per_s),
        of("between tokens, p50", "us", lambda f: f.token_p50_us),
        of("between tokens, p99", "us", lambda f: f.token_p99_us),
        of("acceptance length", "tokens/round", lambda f: f.acceptance_length),
        of("lanes running", "lanes", lambda f: float(f.running)),
        of("requests waiting", "requests", lambda f: float(f.waiting)),
    ]


def tier_speeds(records: Records) -> list[TierSpeed]:
    """Hops and hit shares by tier, from the frames; from the roll-ups where no frame has hops."""
    last = records.frames[-1] if records.frames else None
    known = {} if last is None else {tier.name: tier for tier in last.tiers}
    names = dict.fromkeys([*known, *(hop.tier for hop in records.hops)])
    looked = [
        Look(tier.name, tier.hops, tier.hop_p50_us, tier.hop_p99_us, tier.hit_share)
        for frame in records.frames
        for tier in frame.tiers
    ]
    if not any(look.p50_us is not None for look in looked):
        looked += [
            Look(hop.tier, hop.count, hop.p50_us or None, hop.p99_us or None, None)
            for hop in records.hops
        ]
    said = "measured" if last is None else last.provenance
    return [
        TierSpeed(
            tier=name,
            hops=sum(look.hops for look in looked if look.tier == name),
            p50_us=_mean((look.p50_us, look.hops) for look in looked if look.tier == name),
            p99_us=max(
                (look.p99_us for look in looked if look.tier == name and look.p99_us is not None),
                default=None,
            ),
            hit_share=_mean((look.hit_share, look.hops) for look in looked if look.tier == name),
            simulated=name in known and known[name].simulated,
            provenance=said,
        )
        for name in names
    ]


@dataclass(frozen=True)
class Look:
    """Hops of a tier within one frame or bucket."""

    tier: str
    hops: int
    p50_us: float | None
    p99_us: float | None
    hit_share: float | None


def _mean(values: Iterable[tuple[float | None, int]]) -> float | None:
    """Weighted by hops, of those that are known."""
    pairs = [(value, max(1, hops)) for value, hops in values if value is not None]
    weight = sum(hops for _, hops in pairs)
    return sum(value * hops for value, hops in pairs) / weight if weight else None


def unwell(frames: Sequence[Frame]) -> list[Unwell]:
    """Stretches in which a node or the pod was in a state that is not healthy, for one kind of
    reason: the pod's first, the longest first. What is healthy in between begins a new one."""
    open_: dict[tuple[str | None, str, str], Unwell] = {}
    ended: list[Unwell] = []
    for frame in frames:
        states: list[tuple[str | None, str, str | None]] = [(None, frame.state, frame.reason)]
        states += [(node.name, node.state, node.reason) for node in frame.nodes]
        for node, state, reason in states:
            if state == "healthy":
                ended += [open_.pop(key) for key in list(open_) if key[0] == node]
                continue
            since_ms = frame.at_ms - round(1000 * frame.interval_s)
            key = (node, state, sentence_kind(reason or ""))
            known = open_.get(key) or Unwell(node, state, 0.0, since_ms, frame.at_ms, reason)
            most_s = known.most_s + frame.interval_s
            open_[key] = replace(known, most_s=most_s, until_ms=frame.at_ms, reason=reason)
    listed = [replace(each, most_s=round(each.most_s, 1)) for each in (*ended, *open_.values())]
    return sorted(
        listed,
        key=lambda each: (each.node is not None, -each.most_s, each.node or "", each.since_ms),
    )


def weighted_quantile(values: Iterable[tuple[float, float]], share: float) -> float | None:
    """The least value that `share` of the weight does not exceed; None of none."""
    ordered = sorted((value, weight) for value, weight in values if weight > 0)
    wanted = share * sum(weight for _, weight in ordered)
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= wanted - 1e-9:
            return value
    return None


def growth(frames: Sequence[Frame], of: Callable[[Frame], int]) -> int:
    """How much a count grew; it begins anew with the Station."""
    total = 0
    before: Frame | None = None
    for frame in frames:
        restarted = before is not None and frame.uptime_s < before.uptime_s
        if before is None:
            begun_within = frame.uptime_s <= frame.interval_s
            total += of(frame) if begun_within else 0
        elif restarted:
            total += of(frame)
        else:
            total += max(0, of(frame) - of(before))
        before = frame
    return total


def _tokens(records: Records, kind: str) -> int | None:
    """Of the frames' counters, of the roll-ups where there are no frames."""
    if records.frames:
        return growth(records.frames, lambda frame: getattr(frame, f"{kind}_tokens"))
    if not records.tokens:
        return None
    return sum(rollup.tokens for rollup in records.tokens if rollup.kind == kind)
