"""Swaps as JSON: what a plan would do, how far a swap is, and what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any

from k3d.placement.pod import SPARK_TIER
from k3d.placement.swap_plan import SwapPlan, Traffic, Wave, traffic
from k3d.station.assembly import Station
from k3d.station.swap_progress import SwapProgress
from k3d.station.swap_reconciler import SwapReconciler
from k3d.store.records import Intent

KEPT_OUT = "planned_digest"
"""Of an intent's plan: what only the reconciler needs."""


def plan_document(
    station: Station,
    made: SwapPlan,
    name: str,
    rate_bytes_s: int,
    recut: Sequence[str] | None = None,
) -> dict[str, Any]:
    """What would be done, in full. Counts and bytes are exact; the time is modelled. `recut` are
    the sparks that hold slices from then on, where those are cut anew."""
    cost = plan_traffic(station, made)
    return {
        "schema": "k3d.placement-plan/1",
        "name": name,
        "epoch": made.now.epoch,
        "token": made.token,
        "copies": made.moves,
        "parked": made.parked,
        "size_bytes": cost.total_bytes,
        "rate_bytes_s": rate_bytes_s,
        "seconds": {
            "value": round(cost.total_bytes / rate_bytes_s, 3),
            "provenance": "modelled",
            "formula": "size_bytes / rate_bytes_s: the least, without pauses and verification",
        },
        "tiers": _tiers(station, made, cost),
        "nodes": [{"name": node, "size_bytes": size} for node, size in cost.node_bytes.items()],
        "waves": [_wave(wave) for wave in made.waves],
        "waits_for": waited_for(station, made, recut),
    }


def waited_for(station: Station, made: SwapPlan, recut: Sequence[str] | None) -> list[str]:
    """Sparks that are not ready and without which the swap would not come into force."""
    membership = station.membership
    if recut is not None:
        needed = [link for link in membership.links if link.node in recut]
    else:
        to_sparks = any(wave.placed.counts.get(SPARK_TIER, 0) for wave in made.waves)
        needed = list(membership.serving) if to_sparks else []
    return [link.node for link in needed if not link.ready]


def plan_traffic(station: Station, made: SwapPlan) -> Traffic:
    """Bytes of a plan on this pod."""
    pod, record_bytes = station.pod, station.bank.header.record_bytes
    serving = station.in_force.slicing.sparks
    sparks = {spark: record_bytes // len(serving) for spark in serving}
    return traffic(made, pod.station.name, sparks, record_bytes)


def placement_document(reconciler: SwapReconciler) -> dict[str, Any]:
    """The map in force, the swap under way and the last one that ended."""
    station, swaps = reconciler.station, reconciler.swaps
    progress = reconciler.progress
    # A swap that was cancelled is under way until what it copied is dropped.
    under_way = swaps.swap(progress.intent) if progress is not None else None
    ended = swaps.last_ended()
    placement = station.placement
    return {
        "schema": "k3d.placement/1",
        "epoch": placement.epoch,
        "digest": placement.digest,
        "placement": station.in_force.name,
        "policy": station.options.placement,
        "sparks": list(station.in_force.slicing.sparks),
        "swapped": station.swapped,
        "tiers": [
            {"name": tier, "experts": count, "slots": station.slots[tier]}
            for tier, count in placement.counts.items()
        ],
        "swap": _swap(reconciler, under_way, progress) if under_way else None,
        "last": _swap(reconciler, ended) if ended else None,
    }


def swap_line(progress: SwapProgress | None) -> dict[str, Any] | None:
    """What the pod's status says of a swap under way."""
    if progress is None:
        return None
    return {
        "intent": progress.intent,
        "phase": progress.phase,
        "wave": progress.wave,
        "waves": progress.waves,
        "copied_bytes": progress.copied_bytes,
        "size_bytes": progress.planned_bytes,
        "paused": progress.paused,
    }


def _tiers(station: Station, made: SwapPlan, cost: Traffic) -> list[dict[str, Any]]:
    leaving = Counter(move.source for wave in made.waves for move in wave.moves)
    now, then = made.now.counts, made.final.counts
    return [
        {
            "name": tier,
            "slots": station.slots[tier],
            "experts_now": now[tier],
            "experts_then": then[tier],
            "free_slots_now": station.slots[tier] - now[tier],
            "most_staged": max((len(wave.into(tier)) for wave in made.waves), default=0),
            "in": cost.copies[tier],
            "out": leaving[tier],
            "size_bytes": cost.tier_bytes[tier],
        }
        for tier in made.now.tiers
    ]


def _wave(wave: Wave) -> dict[str, Any]:
    into = Counter(move.target for move in wave.moves)
    return {
        "epoch": wave.placed.epoch,
        "copies": len(wave.moves),
        "into": dict(into),
        "to_sparks": into[SPARK_TIER] > 0,
    }


def _swap(
    reconciler: SwapReconciler, intent: Intent, progress: SwapProgress | None = None
) -> dict[str, Any]:
    plan = {key: value for key, value in intent.plan.items() if key != KEPT_OUT}
    document = {"intent": intent.id, "state": intent.state, **plan}
    if progress is not None:
        document |= {
            "phase": progress.phase,
            "paused": progress.paused,
            "pauses": progress.pauses,
            "wave": progress.wave,
            "waves": progress.waves,
            "copied_bytes": progress.copied_bytes,
            "seconds": round(monotonic() - progress.started_s, 3),
            "left_s": {"value": round(progress.left_s, 3), "provenance": "modelled"},
        }
    else:
        document["seconds"] = (intent.updated_ms - intent.created_ms) / 1000
    swaps = reconciler.swaps
    if intent.state == "failed":
        document["reason"] = swaps.reason(intent.id)
    document["steps"] = [asdict(step) for step in swaps.steps(intent.id)]
    document["effects"] = [asdict(effect) for effect in swaps.effects(intent.id)]
    return document
