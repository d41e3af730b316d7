"""Costs modelled from what the pod's own hops took, when no receipt of its costs is there.

expert_us = median single-row hop / experts of a call under the map in force; no fixed part

A hop's record does not say how many experts it asked for, so the trace does.
"""

from __future__ import annotations

from collections.abc import Iterable

from k3d.placement.costs import Costs, TierCost, processor_of
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER, PodDescription
from k3d.placement.simulator import simulate
from k3d.placement.trace import Trace
from k3d.store.telemetry import HopRollup

SAMPLE_TOKENS = 1024


def costs_from_hops(
    pod: PodDescription, hops: Iterable[HopRollup], placed: PlacementMap, trace: Trace
) -> dict[str, TierCost]:
    """Costs of the tiers that hops are known of. Raises ConfigError when the map is of another
    model than the trace."""
    weight: dict[str, int] = {}
    summed: dict[str, int] = {}
    for hop in hops:
        if hop.p50_us is not None and hop.tier in pod.slots:
            weight[hop.tier] = weight.get(hop.tier, 0) + hop.count
            summed[hop.tier] = summed.get(hop.tier, 0) + hop.p50_us * hop.count
    free = Costs(
        tuple(_cost(pod, tier, 0.0, 0) for tier in placed.tiers), pod.slice_count, "sliced"
    )
    used = simulate(placed, trace.sampled(SAMPLE_TOKENS), free, by_rows=False).tiers
    called = {use.tier: use.experts_a_call for use in used if use.experts_a_call}
    return {
        tier: _cost(pod, tier, summed[tier] / weight[tier] / called[tier], weight[tier])
        for tier in summed
        if tier in called
    }


def _cost(pod: PodDescription, tier: str, expert_us: float, hops: int) -> TierCost:
    slices = max(1, pod.slice_count) if tier == SPARK_TIER else 1
    return TierCost(
        tier=tier,
        processor=processor_of(pod, tier),
        call_us=0.0,
        expert_us=expert_us,
        row_us=0.0,
        whole_us=expert_us * slices,
        slice_us=expert_us,
        provenance="modelled",
        source=f"{hops} hops in telemetry",
    )
