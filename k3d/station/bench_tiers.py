"""`bench tiers`: what each tier of an embedded pod costs a call and an expert.

Layers of random ids are served on maps of the benchmark's own, one row at a time and several, and
the costs are fitted to their times (`tier_fit`).
"""

from __future__ import annotations

import os
import platform
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from k3d import __version__
from k3d.errors import ConfigError
from k3d.experts.tiers import ExpertTiers
from k3d.placement.pod import SPARK_TIER, load_pod, model_directory
from k3d.placement.policy_files import find_policy
from k3d.station.assembly import Station
from k3d.station.bench_home import assembled, bench_home, spark_processes
from k3d.station.options import StationOptions
from k3d.station.tier_fit import Layers, fitted, joined

ROWS = 4
WARM_PASSES = 16


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
    own = tuple(tier for tier in pod.slots if tier != SPARK_TIER)
    served: dict[str, list[Layers]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(bench_home(home))
        if pod.sparks and options.transport != "inproc":
            stack.enter_context(spark_processes(folder, description, pod, options))
        for seed in range(rounds):
            for name, share in _maps(own, bool(pod.sparks)).items():
                policy = _policy(folder, name, share)
                with assembled(pod, folder, replace(options, placement=policy)) as station:
                    serve_layers(station, random_ids(station, WARM_PASSES, ROWS, seed))
                    for rows, key in ((1, name), (ROWS, f"{name}, rows")):
                        ids = random_ids(station, max(ROWS, tokens // rows), rows, seed)
                        served.setdefault(key, []).append(serve_layers(station, ids))
    found = fitted({name: joined(parts) for name, parts in served.items()}, own, bool(pod.sparks))
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


def _environment() -> dict[str, Any]:
    return {
        "version": __version__,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _maps(own: tuple[str, ...], sparks: bool) -> dict[str, dict[str, float]]:
    """Shares of the tiers on each map."""
    maps = {"own": dict.fromkeys(own, 1 / len(own))} if own else {}
    if sparks:
        maps["sparks"] = {SPARK_TIER: 1.0}
    if sparks and own:
        maps["mixed"] = {**dict.fromkeys(own, 0.5 / len(own)), SPARK_TIER: 0.5}
    return maps


def _policy(folder: Path, name: str, share: dict[str, float]) -> str:
    lines = ['schema = "k3-placement/1"', 'policy = "layer-balanced"', "[share]"]
    lines += [f"{tier} = {part!r}" for tier, part in share.items()]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


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
