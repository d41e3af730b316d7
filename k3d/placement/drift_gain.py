"""What replanning would gain: the map in force against the best map planned for the traffic seen.

gain = 1 - time(replanned) / time(in force), each the mean modelled expert time of a token

Of live traffic only counts are known. It is then made up from them: tokens that choose by the
counts alone, layer by layer (population.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from k3d.placement.costs import Costs
from k3d.placement.placement_map import PlacementMap
from k3d.placement.planners import PlanRequest, make_plan
from k3d.placement.policy import PlacementPolicy
from k3d.placement.population import Population, made_trace, origin_of
from k3d.placement.simulator import Simulation, simulate
from k3d.placement.trace import Trace

MOST_TOKENS = 4096
CELLS = 2**20
"""Tokens x experts of a layer that are made up at most."""


@dataclass(frozen=True)
class Gain:
    """Both simulations are modelled. `moved` experts have another tier in `placed`."""

    policy: str
    now: Simulation
    best: Simulation
    placed: PlacementMap
    moved: int
    made_up: bool

    @property
    def share(self) -> float:
        """Of the time a token's experts take now; below 0 when the map in force is better."""
        mean_us = self.now.token.mean_us
        return 1.0 - self.best.token.mean_us / mean_us if mean_us else 0.0


def traffic_of(population: Population, layers: tuple[int, ...]) -> Trace:
    """Made-up traffic of a population, large enough to plan by."""
    experts = population.counts.shape[1]
    return made_trace(population, layers, max(512, min(MOST_TOKENS, CELLS // experts)))


def gain_of_replanning(
    placed: PlacementMap,
    traffic: Trace,
    policy: PlacementPolicy,
    costs: Costs,
    slots: Mapping[str, int],
    seen: Population | None = None,
) -> Gain:
    """Plan anew for `traffic` and simulate both maps on it. `seen` are the counts that traffic was
    made up from: then the map's origin. Raises ConfigError when the policy cannot be satisfied.
    """
    made = make_plan(PlanRequest(policy, traffic, slots, costs)).placed
    if seen is not None:
        made = replace(made, origin=origin_of(seen, policy.name or policy.policy))
    sample = traffic.sampled(MOST_TOKENS)
    now, best = (simulate(each, sample, costs, by_rows=False) for each in (placed, made))
    same = placed.with_tiers(made.tiers)
    moved = sum(a != b for a, b in zip(same.tier_of, made.tier_of, strict=True))
    made_up = traffic.header.provenance == "modelled"
    return Gain(policy.name or policy.policy, now, best, made, moved, made_up)
