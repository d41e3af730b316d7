"""What drift is found in: the pod and the map in force, from state.db, and the traffic it sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from k3ctl.client.daemon import Daemon
from k3ctl.client.map_in_force import InForce
from k3ctl.client.tier_costs import find_costs
from k3d.errors import NotFound
from k3d.placement.costs import Costs
from k3d.placement.drift_gain import Gain, gain_of_replanning, traffic_of
from k3d.placement.policy import load_policy
from k3d.placement.population import Population, population_of
from k3d.placement.trace import Trace, read_trace

LIVE_S = 30.0


@dataclass(frozen=True)
class Seen:
    """Traffic: `trace` only if it was recorded, `since_s` only of live traffic."""

    population: Population
    trace: Trace | None
    since_s: float | None


def recorded(path: str) -> Seen:
    """The traffic of a trace. Raises NotFound, ConfigError."""
    trace = read_trace(Path(path), with_weights=False)
    population = population_of(trace)
    return Seen(replace(population, source=path), trace, None)


def live(home: Path, since_s: float | None) -> Seen:
    """What the router of a running pod chose lately. Raises what the Station answers with."""
    with Daemon.station_of(home, timeout_s=LIVE_S) as station:
        answer = station.placement_use(since_s)
    counts = np.array(answer["uses"], np.int64)
    source = f"live traffic of the last {answer['since_s']:.0f} s"
    population = Population(counts, answer["rows"], answer["top_k"], 1.0, "measured", source)
    return Seen(population, None, answer["since_s"])


def costs_for(home: Path, in_force: InForce, seen: Seen) -> Costs:
    """What the tiers cost, as far as it is known here. Raises K3Error with why it is not, and
    NotFound without a token to plan from."""
    if not seen.population.tokens:
        raise NotFound("no token was seen under the map in force")
    return find_costs(home, in_force.pod, _traffic(in_force, seen), "sliced")


def find_gain(home: Path, in_force: InForce, seen: Seen, policy: str, costs: Costs) -> Gain:
    """What replanning gains. Raises K3Error with why it is not known."""
    placed, chosen = in_force.placed, load_policy(policy, home)
    counted = None if seen.trace is not None else seen.population
    slots = in_force.pod.slots
    return gain_of_replanning(placed, _traffic(in_force, seen), chosen, costs, slots, counted)


def _traffic(in_force: InForce, seen: Seen) -> Trace:
    return seen.trace or traffic_of(seen.population, in_force.placed.layers)
