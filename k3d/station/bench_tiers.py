"""`bench tiers`: what each tier of an embedded pod costs a call and an expert.

Layers of random ids are served on maps of the benchmark's own, one row at a time and several, and
the costs are fitted to their times (`tier_fit`).
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from k3d import __version__
from k3d.errors import ConfigError
from k3d.experts.tiers import ExpertTiers
from k3d.placement.pod import SPARK_TIER, PodDescription, load_pod, model_directory
from k3d.placement.policy_files import find_policy
from k3d.station.assembly import Station
from k3d.station.bench_home import assembled, bench_home, spark_processes
from k3d.station.options import StationOptions
from k3d.station.tier_fit import Fitted, Layers, fitted, joined

OWN = ("own", "own-in-turns")
"""The maps of the Station's tiers alone."""
ROWS = 4
WARM_PASSES = 96
"""The first passes of a new Station and its sparks take up to twice as long."""


def bench_tiers(
    home: Path, pod_name: str, options: StationOptions, tokens: int, rounds: int
) -> dict[str, Any]:
    """Figures for a receipt of kind "tier-costs". Raises ConfigError for a pod of more machines."""
    pod = load_pod(pod_name, home)
    if any(not node.loopback for node in pod.nodes):
        raise ConfigError(
            f"pod {pod.name} spans machines; bench tiers starts its own processes",
            hint="use an embedded description, or describe the costs in [[cost]]",
        )
    pod = msgspec.structs.replace(pod, model=str(model_directory(pod, home)))
    description = find_policy("pods", pod_name, home)
    rounds_served = []
    with ExitStack() as stack:
        folder = stack.enter_context(bench_home(home))
        if pod.sparks and options.transport != "inproc":
            stack.enter_context(spark_processes(folder, description, pod, options))
        for seed in range(rounds):
            rounds_served.append(serve_round(pod, folder, options, tokens, seed))
    found = fit_rounds(rounds_served)
    return {
        "schema": "k3d.bench-tiers/1",
        "provenance": "measured",
        "simulated": any(node.simulated for node in pod.nodes),
        "pod": pod.name,
        "sparks": len(pod.sparks),
        "transport": options.transport,
        "tokens": tokens,
        "rounds": rounds,
        "tiers": found.tiers,
        "contention": round(found.contention, 2),
        "environment": _environment(),
    }


@dataclass(frozen=True)
class Round:
    """Layers of the maps without sparks, if there are any, and of every map."""

    own: Layers | None
    single: Layers
    several: Layers


def serve_round(
    pod: PodDescription, folder: Path, options: StationOptions, tokens: int, seed: int
) -> Round:
    """Random passes on every map of the benchmark's, from a home whose sparks run."""
    policies = _policies(pod, folder)
    single, several = [], []
    for policy in policies.values():
        with assembled(pod, folder, replace(options, placement=policy)) as station:
            warm_up(station)
            for rows, served in ((1, single), (ROWS, several)):
                ids = random_ids(station, max(ROWS, tokens // rows), rows, seed)
                served.append(serve_layers(station, ids).usual)
    own = [layers for name, layers in zip(policies, single, strict=True) if name in OWN]
    return Round(joined(own) if own else None, joined(single), joined(several))


def fit_rounds(rounds: Sequence[Round]) -> Fitted:
    """The costs that rounds of one pod tell together."""
    own = [each.own for each in rounds if each.own is not None]
    return fitted(
        joined(own) if own else None,
        joined([each.single for each in rounds]),
        joined([each.several for each in rounds]),
    )


def _environment() -> dict[str, Any]:
    return {
        "version": __version__,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _policies(pod: PodDescription, folder: Path) -> dict[str, str]:
    """Placement policies, as files. Each side is alone and beside the other; and layers use its
    tiers together or one tier after another, which finds the next one's memory in no cache."""
    own = [tier for tier in pod.slots if tier != SPARK_TIER]
    maps: dict[str, tuple[str, dict[str, float]]] = {}
    if own:
        alike = dict.fromkeys(own, 1 / len(own))
        maps |= {OWN[0]: ("layer-balanced", alike), OWN[1]: ("contiguous", alike)}
    if pod.sparks:
        maps["sparks"] = "layer-balanced", {SPARK_TIER: 1.0}
    if own and pod.sparks:
        half = {**dict.fromkeys(own, 0.5 / len(own)), SPARK_TIER: 0.5}
        maps |= {"mixed": ("layer-balanced", half), "mixed-in-turns": ("contiguous", half)}
    found = {}
    for name, (policy, share) in maps.items():
        lines = ['schema = "k3-placement/1"', f'policy = "{policy}"', "[share]"]
        lines += [f"{tier} = {part!r}" for tier, part in share.items()]
        path = folder / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        found[name] = str(path)
    return found


def warm_up(station: Station) -> None:
    """Serve until passes take what they will take."""
    for rows in (ROWS, 1):
        serve_layers(station, random_ids(station, WARM_PASSES // rows, rows, 0))


def random_ids(station: Station, passes: int, rows: int, seed: int) -> NDArray[np.int32]:
    """Ids i32 [passes, layers, rows, experts a token], every expert as likely."""
    draw, shape = np.random.default_rng(seed), station.shape
    keys = draw.random((passes, len(shape.layers), rows, shape.experts), np.float32)
    return np.argsort(keys, axis=-1)[..., : shape.top_k].astype(np.int32)


def serve_layers(station: Station, ids: NDArray[np.int32]) -> Layers:
    """Serve passes of ids i32 [passes, layers, rows, experts a token], every layer timed alone."""
    experts, shape = station.engine.experts, station.shape
    assert isinstance(experts, ExpertTiers)
    tiers = station.placement.tiers
    table = np.array(
        [
            [tiers.index(station.placement.tier(layer, expert)) for expert in range(shape.experts)]
            for layer in shape.layers
        ]
    )
    dtype = station.engine.model.dtype
    rows = ids.shape[2]
    weights = torch.full(
        (rows, shape.top_k),
        1 / shape.top_k,
        dtype=torch.float64 if dtype is torch.float64 else torch.float32,
    )
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((rows, shape.latent))).to(dtype)
    count, more, times = [], [], []
    for chosen in ids:
        for index, layer in enumerate(shape.layers):
            asked = torch.from_numpy(chosen[index].copy())
            begun = time.perf_counter_ns()
            experts.start(layer, asked, weights, x)
            experts.finish()
            times.append((time.perf_counter_ns() - begun) / 1000)
            homes = table[index]
            distinct = np.bincount(homes[np.unique(chosen[index])], minlength=len(tiers))
            count.append(distinct)
            more.append(np.bincount(homes[chosen[index].ravel()], minlength=len(tiers)) - distinct)
    return Layers(tiers, np.array(count, float), np.array(more, float), np.array(times))
