"""Simulated beside measured: python kernels/bench/placement_measured.py TRACE MAP...

Measures the costs of an embedded pod's tiers and plans by them. Then, in turns, it measures the
costs again and replays a trace through the pod's tiers on each map (a policy's name or a .json
file). Shown are the time of a token's experts by simulation with the costs of those rounds, and as
measured in them: all of it, and each tier's own. A hop to the sparks is measured until its answer
is taken, which is when the Station's own tiers are done. The figures are of this machine, and of
little use while it does something else.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from k3d.experts.tiers import ExpertTiers
from k3d.placement.costs import RECEIPT, Costs, costs_of
from k3d.placement.placement_map import PlacementMap
from k3d.placement.planners import PlanRequest, make_plan
from k3d.placement.pod import PodDescription, load_pod, model_directory
from k3d.placement.policy import load_policy
from k3d.placement.policy_files import find_policy
from k3d.placement.simulator import simulate
from k3d.placement.trace import read_trace
from k3d.station.assembly import Station
from k3d.station.bench_home import assembled, bench_home, spark_processes
from k3d.station.bench_tiers import Round, fit_rounds, serve_layers, serve_round, warm_up
from k3d.station.options import StationOptions
from k3d.store.home import resolve_home
from k3d.store.records import Receipt

MAPS = ("contiguous", "layer-balanced", "hot-cold", "cost-ranked", "optimised")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("maps", nargs="*", default=MAPS)
    parser.add_argument("--pod", default="embedded")
    parser.add_argument("--transport", default="shm", choices=("shm", "tcp", "inproc"))
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, help="of each tier, instead of the description's")
    options = parser.parse_args()
    home = resolve_home(None)
    trace = read_trace(options.trace, with_weights=False)
    replayed = trace.sampled(options.tokens)
    ids = replayed.ids.transpose(1, 0, 2)[:, :, None].astype(np.int32)  # [tokens, layers, 1, top_k]
    chosen = StationOptions(options.transport, "layer-balanced", "bf16", 256)
    pod = load_pod(options.pod, home)
    slots = {tier: options.slots or held for tier, held in pod.slots.items()}
    pod = msgspec.structs.replace(pod, model=str(model_directory(pod, home)))
    tiers: dict[str, dict[str, float]] = {name: {} for name in options.maps}
    taken: dict[str, list[np.ndarray]] = {name: [] for name in options.maps}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        own = stack.enter_context(bench_home(home))
        if options.transport != "inproc":
            description = find_policy("pods", options.pod, home)
            stack.enter_context(spark_processes(own, description, pod, chosen))
        rounds = [serve_round(pod, own, chosen, options.tokens, 0)]
        costs = costs_told(pod, rounds)
        placed: dict[str, PlacementMap] = {}
        for name in options.maps:
            request = PlanRequest(load_policy(name, home), trace, slots, costs)
            placed[name] = make_plan(request).placed
            (Path(folder) / f"{Path(name).stem}.json").write_bytes(placed[name].to_json())
        for number in range(options.rounds):
            rounds.append(serve_round(pod, own, chosen, options.tokens, 1 + number))
            for name in options.maps:
                path = Path(folder) / f"{Path(name).stem}.json"
                with assembled(pod, own, replace(chosen, placement=str(path))) as station:
                    warm_up(station)
                    before = spent_us(station)
                    layers = serve_layers(station, ids)
                    taken[name].append(layers.time_us.reshape(len(ids), -1).sum(axis=1))
                    for tier, after in spent_us(station).items():
                        each_us = (after - before[tier]) / len(ids) / options.rounds
                        tiers[name][tier] = tiers[name].get(tier, 0.0) + each_us
        costs = costs_told(pod, rounds[1:])
    put = sys.stdout.write
    for cost in costs.tiers:
        put(f"{cost.tier:6} {cost.call_us:8.1f} + {cost.expert_us:7.1f} k us\n")
    put(f"contention {costs.contention:.2f}, load {os.getloadavg()[0]:.1f}\n")
    told = {name: simulate(each, replayed, costs, by_rows=False) for name, each in placed.items()}
    put("map                     simulated us  measured us  ratio  measured p50 us\n")
    mean = {name: float(np.concatenate(times).mean()) for name, times in taken.items()}
    usual = {name: float(np.median(np.concatenate(times))) for name, times in taken.items()}
    for name in sorted(told, key=lambda name: told[name].token.mean_us):
        mean_us = told[name].token.mean_us
        put(
            f"{name:22} {mean_us:13.0f} {mean[name]:12.0f} {mean_us / mean[name]:6.2f} "
            f"{usual[name]:16.0f}\n"
        )
        for use in told[name].tiers:
            if use.called:
                put(f"  {use.tier:20} {use.time_us:13.0f} {tiers[name][use.tier]:12.0f}\n")
    by_taken = sorted(usual, key=usual.__getitem__)
    put(f"order by the measured p50: {' < '.join(by_taken)}\n")


def costs_told(pod: PodDescription, rounds: Sequence[Round]) -> Costs:
    found = fit_rounds(rounds)
    figures = {
        "pod": pod.name,
        "sparks": len(pod.sparks),
        "tiers": found.tiers,
        "contention": found.contention,
    }
    return costs_of(pod, [Receipt("measured", 1, RECEIPT, "measured", "", figures, {})])


def spent_us(station: Station) -> dict[str, float]:
    """Microseconds that hops to each tier have taken since the Station began."""
    experts = station.engine.experts
    assert isinstance(experts, ExpertTiers)
    log = experts.log
    return {tier: float(log.figures(index).sum_us) for index, tier in enumerate(log.tiers)}


if __name__ == "__main__":
    main()
