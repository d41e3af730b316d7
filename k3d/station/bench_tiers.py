"""`bench tiers`: what each tier of an embedded pod costs a call and an expert, fitted to layers.

Layers of random ids are served on three maps, one row at a time:

| map | layer takes |
| --- | --- |
| the Station's tiers alike | the sum over its tiers of call + experts x expert |
| the same, half on the sparks | the larger of that and of the sparks' call + experts x slice |
| all on the sparks | the sparks' call + experts x slice |

and passes of several rows say what a further row of an expert costs.
"""

from __future__ import annotations

import os
import platform
import time
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
from k3d.placement.pod import SPARK_TIER, load_pod, model_directory
from k3d.placement.policy_files import find_policy
from k3d.station.assembly import Station
from k3d.station.bench_home import assembled, bench_home, spark_processes
from k3d.station.options import StationOptions

ROWS = 4
WARM_PASSES = 16
LAYERS_APART = 1.15
SLOWEST_LEFT_OUT = 0.05


@dataclass(frozen=True)
class Layers:
    """Served layers: distinct experts and further rows [layers, tiers], microseconds [layers]."""

    tiers: tuple[str, ...]
    experts: NDArray[np.float64]
    more_rows: NDArray[np.float64]
    time_us: NDArray[np.float64]

    def where(self, kept: NDArray[np.bool_]) -> Layers:
        return Layers(self.tiers, self.experts[kept], self.more_rows[kept], self.time_us[kept])

    @property
    def usual(self) -> Layers:
        """Without the slowest, which something else on the machine made slow."""
        return self.where(self.time_us <= np.quantile(self.time_us, 1 - SLOWEST_LEFT_OUT))


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
    joined = {name: _joined(parts) for name, parts in served.items()}
    return {
        "schema": "k3d.bench-tiers/1",
        "provenance": "measured",
        "simulated": any(node.simulated for node in pod.nodes),
        "pod": pod.name,
        "sparks": len(pod.sparks),
        "transport": options.transport,
        "tokens": tokens,
        "rounds": rounds,
        "tiers": fitted(joined, own, bool(pod.sparks)),
        "environment": _environment(),
    }


def fitted(
    joined: dict[str, Layers], own: tuple[str, ...], sparks: bool
) -> dict[str, dict[str, Any]]:
    """Costs of each tier from the layers of each map (`own`, `sparks`, `mixed` and their rows)."""
    tiers = _fit_own(joined, own) if own else {}
    if sparks:
        tiers[SPARK_TIER] = _fit_sparks(joined, tiers)
    return tiers


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


def _joined(parts: list[Layers]) -> Layers:
    return Layers(
        parts[0].tiers,
        np.concatenate([part.experts for part in parts]),
        np.concatenate([part.more_rows for part in parts]),
        np.concatenate([part.time_us for part in parts]),
    )


def _fit_own(joined: dict[str, Layers], own: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Costs of the Station's tiers, which take turns: one fit for all."""
    layers = joined["own"].usual
    columns = [layers.tiers.index(tier) for tier in own]
    held = layers.experts[:, columns]
    found = _least_squares(np.concatenate([held > 0, held], axis=1), layers.time_us)
    calls, each = found[: len(own)], found[len(own) :]
    told = (held > 0) @ calls + held @ each
    rows = joined["own, rows"].usual
    row_us = _row_us(rows, columns, calls, each)
    return {
        tier: _figures(layers, columns[i], calls[i], each[i], row_us, told)
        for i, tier in enumerate(own)
    }


def _fit_sparks(joined: dict[str, Layers], own: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Costs of the sparks: of layers in which the Station's tiers did not make them wait."""
    alone = joined["sparks"].usual
    column = alone.tiers.index(SPARK_TIER)
    held, times = [alone.experts[:, column]], [alone.time_us]
    if "mixed" in joined:
        mixed = joined["mixed"].usual
        station = np.zeros(len(mixed.time_us))
        for tier, cost in own.items():
            at = mixed.experts[:, mixed.tiers.index(tier)]
            station += (at > 0) * cost["call_us"] + at * cost["expert_us"]
        k = mixed.experts[:, mixed.tiers.index(SPARK_TIER)]
        apart = (k > 0) & (mixed.time_us > LAYERS_APART * station)
        held.append(k[apart])
        times.append(mixed.time_us[apart])
    k, taken = np.concatenate(held), np.concatenate(times)
    call, each = _least_squares(np.stack([np.ones_like(k), k], axis=1), taken)
    row_us = _row_us(joined["sparks, rows"].usual, [column], np.array([call]), np.array([each]))
    return _figures(alone, column, call, each, row_us, call + alone.experts[:, column] * each)


def _least_squares(features: NDArray[Any], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients, none below 0: what would be is left out and the rest fitted again.

    The fit is to the median of layers alike, which a busy machine moves least, and then scaled to
    the mean of all.
    """
    alike, group = np.unique(features.astype(float), axis=0, return_inverse=True)
    medians = np.array([np.median(wanted[group == number]) for number in range(len(alike))])
    weight = np.sqrt(np.bincount(group, minlength=len(alike)))
    used = np.ones(alike.shape[1], bool)
    while True:
        found = np.zeros(alike.shape[1])
        scaled = alike[:, used] * weight[:, None]
        found[used] = np.linalg.lstsq(scaled, medians * weight, rcond=None)[0]
        if (found >= 0).all():
            break
        used &= found >= 0
    told = float((features @ found).mean())
    return found * (float(wanted.mean()) / told if told else 1.0)


def _row_us(
    layers: Layers, columns: list[int], calls: NDArray[np.float64], each: NDArray[np.float64]
) -> float:
    """What a further row of an expert costs, from passes of several rows."""
    held, more = layers.experts[:, columns], layers.more_rows[:, columns].sum(axis=1)
    rest = layers.time_us - (held > 0) @ calls - held @ each
    return max(0.0, float(rest.sum() / more.sum())) if more.sum() else 0.0


def _figures(
    layers: Layers, column: int, call: float, each: float, row_us: float,
    told: NDArray[np.float64],
) -> dict[str, Any]:  # fmt: skip
    """One tier of the receipt; `residual` is the mean error of the fit over the mean layer."""
    with_it = layers.experts[:, column] > 0
    error = np.abs(told - layers.time_us).mean() / layers.time_us.mean()
    return {
        "call_us": round(float(call), 2),
        "expert_us": round(float(each), 2),
        "row_us": round(row_us, 2),
        "hops": int(with_it.sum()),
        "p50_us": round(float(np.median(layers.time_us[with_it])), 1),
        "residual": round(float(error), 4),
    }
