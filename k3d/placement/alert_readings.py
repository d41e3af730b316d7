"""Readings: what a frame and the last look for drift say of each rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from k3d.placement.alert_policy import (
    AlertPolicy,
    AnyRule,
    DiskFree,
    Drifted,
    NodeDown,
    Temperature,
    TierP99,
)
from k3d.placement.drift import Drift
from k3d.store.frame import Frame, NodeFrame

GIB = 2**30


@dataclass(frozen=True)
class Reading:
    """One rule about one subject. `bad` is beyond the level that raises, `good` on the good side
    of the one that clears; neither is between the two, or not known. `sentence` says what is bad.
    """

    rule: AnyRule
    watch: str
    subject: str
    bad: bool
    good: bool
    sentence: str
    command: str


def readings(policy: AlertPolicy, frame: Frame | None, drift: Drift | None) -> list[Reading]:
    """Of every rule that anything is known of."""
    found: list[Reading] = []
    for rule in policy.rules:
        if isinstance(rule, Drifted):
            found += _drift(rule, drift)
        elif frame is not None:
            found += _of_frame(rule, frame)
    return found


def _of_frame(rule: AnyRule, frame: Frame) -> Iterator[Reading]:
    match rule:
        case NodeDown():
            yield from (_node(rule, node) for node in frame.nodes)
        case TierP99():
            yield from _tier(rule, frame)
        case Temperature():
            for node in _named(frame, rule.node):
                yield from _temperature(rule, node)
        case DiskFree():
            for node in _named(frame, rule.node):
                yield from _disk(rule, node)


def _named(frame: Frame, name: str | None) -> list[NodeFrame]:
    return [node for node in frame.nodes if name in (None, node.name)]


def _node(rule: NodeDown, node: NodeFrame) -> Reading:
    down = node.state == "down"
    why = f"{node.name} is down" + (f": {node.reason}" if node.reason else "")
    good = node.state in ("healthy", "degraded")
    return Reading(rule, "node-down", node.name, down, good, why, f"k3ctl logs {node.name}")


def _drift(rule: Drifted, drift: Drift | None) -> Iterator[Reading]:
    if drift is None:
        return
    sentence = "the traffic has drifted from what the map in force was planned from"
    if drift.divergence is not None and drift.hot_sets is not None:
        sentence += (
            f": {drift.divergence.bits:.3f} bits a layer, "
            f"{100 * drift.hot_sets.shared:.0f} % of hot experts in common"
        )
    yield Reading(
        rule, "drift", "placement", drift.verdict == "drift", drift.verdict == "none", sentence,
        "k3ctl placement drift",
    )  # fmt: skip


def _tier(rule: TierP99, frame: Frame) -> Iterator[Reading]:
    for tier in frame.tiers:
        p99_us = tier.hop_p99_us
        if tier.name == rule.tier and p99_us is not None:
            clear_us = rule.above_us if rule.clear_us is None else rule.clear_us
            yield Reading(
                rule, "tier-p99", tier.name, p99_us > rule.above_us, p99_us <= clear_us,
                f"hops to {tier.name} take {p99_us / 1000:.2f} ms (p99), more than "
                f"{rule.above_us / 1000:.2f} ms",
                "k3ctl pod status",
            )  # fmt: skip


def _temperature(rule: Temperature, node: NodeFrame) -> Iterator[Reading]:
    sensors = node.sensors
    known = [] if sensors is None else [sensors.temperature_c]
    known += [] if sensors is None else [each.temperature_c for each in sensors.accelerators]
    read = [value for value in known if value is not None]
    if read:
        hottest, clear_c = max(read), rule.above_c if rule.clear_c is None else rule.clear_c
        yield Reading(
            rule, "temperature", node.name, hottest > rule.above_c, hottest <= clear_c,
            f"{node.name} is at {hottest:.0f} C, above {rule.above_c:g} C", "k3ctl pod status",
        )  # fmt: skip


def _disk(rule: DiskFree, node: NodeFrame) -> Iterator[Reading]:
    free = None if node.sensors is None else node.sensors.disk_free_bytes
    if free is not None:
        clear = rule.below_bytes if rule.clear_bytes is None else rule.clear_bytes
        yield Reading(
            rule, "disk", node.name, free < rule.below_bytes, free >= clear,
            f"{node.name} has {free / GIB:.2f} GiB of disk left, less than "
            f"{rule.below_bytes / GIB:.2f} GiB",
            "k3ctl bank gc --dry-run",
        )  # fmt: skip
