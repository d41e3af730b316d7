"""The process behind `candidates.weigh`: HOME NAME [--trace FILE] [--keep]; a document on stdout.

Errors are one line of JSON on stderr, as k3ctl writes them, with the code that they exit with.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from dataclasses import asdict
from pathlib import Path

import msgspec

from k3ctl.client.candidates import (
    Candidate,
    Prediction,
    TierPrediction,
    Times,
    maps_directory,
    no_trace,
)
from k3ctl.client.map_in_force import read_in_force
from k3d.errors import ConfigError, K3Error, NotFound
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import PodDescription
from k3d.placement.policy import MAP_SUFFIX, TRACED, PlacementPolicy, load_policy
from k3d.placement.policy import plan as plan_blind

REPLAYED_TOKENS = 20_000
"""Of a longer trace, as many are replayed."""
NICER = 10
"""Its place behind the pod, which serves on the same machine."""


def main() -> int:
    """Weigh one candidate; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("name")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    os.nice(NICER)
    try:
        found = weigh(options.home, options.name, options.trace, keep=options.keep)
    except K3Error as error:
        sys.stderr.write(msgspec.json.encode(error.document()).decode() + "\n")
        return int(error.code)
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


def weigh(home: Path, name: str, trace: Path | None, *, keep: bool) -> Candidate:
    """The candidate beside the map in force of a home. Raises K3Error."""
    in_force = read_in_force(home)
    pod, now = in_force.pod, in_force.placed
    policy = load_policy(name, home)
    argument: str | None = name
    notes: tuple[str, ...] = ()
    if policy.policy in TRACED or policy.layer:
        placed, notes = _planned(home, pod, now, policy, trace)
        argument = _kept(home, policy, placed) if keep else None
    else:
        placed = plan_blind(now.layers, now.experts, pod.slots, policy)
    placed = placed.with_tiers(now.tiers)
    prediction, missing = None, None
    try:
        prediction = _predicted(home, pod, now, placed, trace)
    except K3Error as error:
        missing = f"{error.message}{f'; {error.hint}' if error.hint else ''}"
    return Candidate(
        name=name,
        argument=argument,
        epoch=now.epoch,
        tiers=now.tiers,
        slots=dict(pod.slots),
        counts_now=now.counts,
        counts_then=placed.counts,
        moves=sum(a != b for a, b in zip(now.tier_of, placed.tier_of, strict=True)),
        tier_of=placed.tier_of,
        notes=notes,
        prediction=prediction,
        not_predicted=missing,
    )


def _planned(
    home: Path, pod: PodDescription, now: PlacementMap, policy: PlacementPolicy, trace: Path | None
) -> tuple[PlacementMap, tuple[str, ...]]:
    """A map that ranks experts by a trace, and what its planner says."""
    if trace is None:
        raise NotFound(
            f"{policy.name} ranks experts by a trace and {no_trace(home)}",
            hint="record one: k3ctl trace record live.k3trace",
        )
    _require_numpy()
    from k3ctl.client.tier_costs import find_costs
    from k3d.placement.planners import PlanRequest, make_plan
    from k3d.placement.trace import read_trace

    read = read_trace(trace, with_weights=False)
    _check_model(now, read.layers, read.experts, trace)
    made = make_plan(PlanRequest(policy, read, pod.slots, find_costs(home, pod, read, "sliced")))
    return made.placed, made.notes


def _predicted(
    home: Path, pod: PodDescription, now: PlacementMap, placed: PlacementMap, trace: Path | None
) -> Prediction:
    """Both maps on the trace. Raises what keeps it from being predicted."""
    if trace is None:
        raise NotFound(
            f"nothing to replay: {no_trace(home)}",
            hint="record one: k3ctl trace record live.k3trace",
        )
    _require_numpy()
    from k3ctl.client.tier_costs import find_costs
    from k3d.placement.simulator import simulate
    from k3d.placement.trace import read_trace

    read = read_trace(trace, with_weights=False)
    _check_model(now, read.layers, read.experts, trace)
    costs = find_costs(home, pod, read, "sliced")
    sample = read.sampled(REPLAYED_TOKENS)
    before = simulate(now, sample, costs, by_rows=False)
    after = simulate(placed, sample, costs, by_rows=False)
    tiers = tuple(
        TierPrediction(
            tier=cost.tier,
            share_now=was.share,
            share_then=then.share,
            time_now_us=was.time_us,
            time_then_us=then.time_us,
            cost_provenance=cost.provenance,
            cost_source=cost.source,
        )
        for cost, was, then in zip(costs.tiers, before.tiers, after.tiers, strict=True)
    )
    return Prediction(
        trace=str(trace),
        tokens=before.tokens,
        now=Times(**asdict(before.token)),
        then=Times(**asdict(after.token)),
        tiers=tiers,
    )


def _check_model(now: PlacementMap, layers: tuple[int, ...], experts: int, trace: Path) -> None:
    if (now.layers, now.experts) != (layers, experts):
        raise ConfigError(
            f"{trace} is of {len(layers)} layers of {experts} experts, the pod serves "
            f"{len(now.layers)} of {now.experts}",
            hint="record a trace of this pod: k3ctl trace record live.k3trace",
        )


def _require_numpy() -> None:
    if importlib.util.find_spec("numpy") is None:
        raise K3Error(
            "traces and planning need numpy, and it is not installed",
            hint="pip install 'k3pod[plan]'",
        )


def _kept(home: Path, policy: PlacementPolicy, placed: PlacementMap) -> str:
    """Write a planned map where the Station can read it; its path."""
    from k3ctl.client.placement_inputs import write_map

    directory = maps_directory(home)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise K3Error(f"{directory} cannot be made: {error.strerror}") from error
    path = directory / f"{Path(policy.name or policy.policy).name}{MAP_SUFFIX}"
    write_map(path, placed)
    return str(path)


if __name__ == "__main__":
    sys.exit(main())
