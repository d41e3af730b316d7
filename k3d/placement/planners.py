"""The planners behind one registry: a policy, a trace and the tiers' costs into a placement map.

contiguous, single, map   as without a trace (policy.py)
layer-balanced            each layer split alike; its hottest experts in the first tier of `order`
frequency                 the same, with every tier filled
hot-cold                  the hottest of all layers in the first tier of `order`, and so on
cost-ranked               hot-cold, with the tiers in the order of their microseconds an expert
optimised                 the least expected time of a token (planner_optimised.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from k3d.errors import ConfigError
from k3d.placement.costs import Costs
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.planner_ranked import by_heat, by_layer
from k3d.placement.planner_repair import repair
from k3d.placement.policy import PlacementPolicy, check_policy
from k3d.placement.policy import plan as plan_blind
from k3d.placement.population import origin_of, population_of
from k3d.placement.trace import Trace


@dataclass(frozen=True)
class PlanRequest:
    """What a planner is given. `slots` are the pod's tiers, fastest first, `costs` theirs."""

    policy: PlacementPolicy
    trace: Trace
    slots: Mapping[str, int]
    costs: Costs
    seed: int = 0

    @property
    def total(self) -> int:
        return len(self.trace.layers) * self.trace.experts


@dataclass(frozen=True)
class Plan:
    """A map and what was done to make it: `repaired` experts were moved for the layers' bounds."""

    placed: PlacementMap
    order: tuple[str, ...]
    repaired: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Homes:
    """A planner's answer: tier numbers u8 [layers, experts], the order it used, its words."""

    home: NDArray[np.uint8]
    order: tuple[str, ...]
    notes: tuple[str, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()


Planner = Callable[[PlanRequest], Homes]


def make_plan(request: PlanRequest) -> Plan:
    """Plan a map, which keeps what it was planned from. The same request gives the same map.

    Raises ConfigError naming the tier, layer or policy key that cannot be satisfied.
    """
    made, policy = _made(request), request.policy
    if policy.map is not None:
        return made  # planned before, from what it says itself
    origin = origin_of(population_of(request.trace), policy.name or policy.policy)
    return replace(made, placed=replace(made.placed, origin=origin))


def _made(request: PlanRequest) -> Plan:
    policy, trace, tiers = request.policy, request.trace, tuple(request.slots)
    check_policy(policy)
    if tiers != request.costs.names:
        raise ConfigError(
            f"costs are of tiers {', '.join(request.costs.names)}, slots of {', '.join(tiers)}",
            hint="use costs of the same pod",
        )
    planner = PLANNERS.get(policy.policy)
    if planner is None:
        placed = plan_blind(trace.layers, trace.experts, request.slots, policy)
        return Plan(placed, policy.order, 0, ("made without looking at the trace",))
    homes = planner(request)
    home, moved = repair(homes.home, trace.counts, tiers, policy.layer, trace.layers)
    placed = number_slots(1, tiers, trace.layers, trace.experts, home.astype(np.uint8).tobytes())
    notes = homes.notes
    if homes.copies and moved:
        notes = (*notes, "second homes were left out: the layers' bounds moved experts")
    elif homes.copies:
        placed = _with_copies(placed, homes.copies)
    placed.require_slots(request.slots)
    return Plan(placed, homes.order, moved, notes)


def _with_copies(placed: PlacementMap, copies: tuple[tuple[int, int], ...]) -> PlacementMap:
    """Give every copy the next slot of its tier."""
    following = [placed.counts[tier] for tier in placed.tiers]
    numbered = []
    for position, tier in copies:
        numbered.append((position, tier, following[tier]))
        following[tier] += 1
    return replace(placed, copies=tuple(numbered))


def _hot_cold(request: PlanRequest) -> Homes:
    order = request.policy.order
    home = by_heat(request.trace.counts, request.slots, request.policy, order)
    return Homes(home, _used(order, request))


def _cost_ranked(request: PlanRequest) -> Homes:
    order = request.costs.ranked
    home = by_heat(request.trace.counts, request.slots, request.policy, order)
    return Homes(home, order, (f"tiers by microseconds an expert: {', '.join(order)}",))


def _layered(request: PlanRequest) -> Homes:
    order = request.policy.order
    home = by_layer(request.trace.counts, request.slots, request.policy, order)
    return Homes(home, _used(order, request))


def _optimised(request: PlanRequest) -> Homes:
    from k3d.placement.planner_optimised import optimise

    found = optimise(
        request.trace,
        request.slots,
        request.policy,
        request.costs,
        seed=request.seed,
    )
    return Homes(found.home, found.order, found.notes, found.copies)


def _used(order: tuple[str, ...], request: PlanRequest) -> tuple[str, ...]:
    return tuple(tier for tier in order if tier in request.slots)


PLANNERS: dict[str, Planner] = {
    "layer-balanced": _layered,
    "frequency": _layered,
    "hot-cold": _hot_cold,
    "cost-ranked": _cost_ranked,
    "optimised": _optimised,
}
