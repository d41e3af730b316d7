"""What tiers cost, fitted to timed layers (the model: k3d.placement.costs).

| layers of one row that call | take | say |
| --- | --- | --- |
| the Station's tiers | the sum over them of call + experts x expert | their costs |
| the sparks alone | call + experts x slice | the two together |
| both | the slower side + contention x the faster | each, and contention |

Layers of several rows that call one side alone say what a further row of an expert costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from k3d.placement.pod import SPARK_TIER

SLOWEST_LEFT_OUT = 0.01
CONTENTIONS = np.linspace(0.0, 1.0, 51)
TURNS = 8


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

    def of(self, tiers: Sequence[str]) -> NDArray[np.float64]:
        """Experts of some tiers, [layers, tiers]."""
        return self.experts[:, [self.tiers.index(tier) for tier in tiers]]

    def calling(self, tiers: Sequence[str]) -> Layers:
        """The layers that call no other tier."""
        return self.where(self.of(tiers).sum(axis=1) == self.experts.sum(axis=1))


@dataclass(frozen=True)
class Line:
    """Costs of tiers that take turns, f64 [tiers]: a layer takes the sum of call + experts each."""

    call: NDArray[np.float64]
    each: NDArray[np.float64]

    def told(self, held: NDArray[np.float64]) -> NDArray[np.float64]:
        """f64 [layers] for experts held [layers, tiers]."""
        return (held > 0) @ self.call + held @ self.each

    def scaled(self, factor: float) -> Line:
        return Line(self.call * factor, self.each * factor)


@dataclass(frozen=True)
class Fitted:
    """A receipt's figures of each tier, and its contention."""

    tiers: dict[str, dict[str, Any]]
    contention: float


def joined(parts: Sequence[Layers]) -> Layers:
    """Layers of maps with the same tiers, one after the other."""
    return Layers(
        parts[0].tiers,
        np.concatenate([part.experts for part in parts]),
        np.concatenate([part.more_rows for part in parts]),
        np.concatenate([part.time_us for part in parts]),
    )


def fitted(own: Layers | None, single: Layers, several: Layers) -> Fitted:
    """Costs of each tier. `own` are layers of maps that have the Station's tiers only, `single`
    those of all maps, `several` those of passes of several rows.

    What the Station's tiers take is not asked of maps with sparks: there they find cold caches, in
    some layers more than in others.
    """
    tiers: dict[str, dict[str, Any]] = {}
    station, names = Line(np.zeros(0), np.zeros(0)), ()
    if own is not None:
        names = tuple(tier for tier in own.tiers if tier != SPARK_TIER)
        station = _turns(own.of(names), own.time_us)
        tiers |= _figures(own, several.calling(names), names, station)
    if SPARK_TIER not in single.tiers:
        return Fitted(tiers, 0.0)
    called = single.where(single.of((SPARK_TIER,))[:, 0] > 0)
    spark, contention = _sparks(called, names, station)
    alone = (SPARK_TIER,)
    tiers |= _figures(single.calling(alone), several.calling(alone), alone, spark)
    return Fitted(tiers, contention)


def _turns(held: NDArray[np.float64], taken: NDArray[np.float64]) -> Line:
    """Costs of tiers that take turns: of layers in which they hold [layers, tiers] experts.

    The fit is to the median of layers alike, which a busy machine moves least, and then scaled to
    the mean of all.
    """
    alike, weight, medians = _alike(held, taken)
    tiers = held.shape[1]
    found = _least_squares(np.concatenate([alike > 0, alike], axis=1), medians, weight)
    line = Line(found[:tiers], found[tiers:])
    return line.scaled(_ratio(taken, line.told(held)))


def _sparks(layers: Layers, own: tuple[str, ...], station: Line) -> tuple[Line, float]:
    """The sparks' costs and contention, of layers that call them.

    For each contention the rest is linear once it is known which side of a layer is the slower
    one, which is guessed and guessed again; the contention that leaves the least is taken.
    """
    held, taken = layers.of((SPARK_TIER,)), layers.time_us
    beside = station.told(layers.of(own)) if own else np.zeros(len(taken))
    rows, weight, medians = _alike(np.column_stack([held, beside]), taken)
    count, stood = rows[:, :1], rows[:, 1]
    features = np.concatenate([count > 0, count], axis=1).astype(float)
    best: tuple[float, Line, float] | None = None
    for contention in CONTENTIONS if beside.any() else (0.0,):
        line = Line(np.zeros(1), np.zeros(1))
        slower = count[:, 0] > 0
        for _ in range(TURNS):
            share = np.where(slower, 1.0, contention)
            rest = medians - np.where(slower, contention, 1.0) * stood
            found = _least_squares(features * share[:, None], rest, weight)
            line = Line(found[:1], found[1:])
            before, slower = slower, line.told(count) >= stood
            if (before == slower).all():
                break
        told = _layer(line.told(count), stood, contention)
        error = float((weight * (medians - told) ** 2).sum())
        if best is None or error < best[0]:
            best = error, line, float(contention)
    assert best is not None
    _, line, contention = best
    told = _layer(line.told(held), beside, contention)
    return line.scaled(_ratio(taken, told)), contention


def _layer(a: NDArray[np.float64], b: NDArray[np.float64], contention: float) -> NDArray[Any]:
    return np.maximum(a, b) + contention * np.minimum(a, b)


def _ratio(taken: NDArray[np.float64], told: NDArray[np.float64]) -> float:
    mean = float(told.mean())
    return float(taken.mean()) / mean if mean else 1.0


def _alike(
    features: NDArray[np.float64], taken: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Features that occur [groups, n], how often [groups] and the median time of each [groups]."""
    alike, group = np.unique(features, axis=0, return_inverse=True)
    group = group.reshape(-1)
    medians = np.array([np.median(taken[group == number]) for number in range(len(alike))])
    return alike, np.bincount(group, minlength=len(alike)).astype(float), medians


def _least_squares(
    features: NDArray[Any], wanted: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Coefficients, none below 0: what would be is left out and the rest fitted again."""
    root = np.sqrt(weight)
    used = np.ones(features.shape[1], bool)
    while True:
        found = np.zeros(features.shape[1])
        scaled = features[:, used].astype(float) * root[:, None]
        found[used] = np.linalg.lstsq(scaled, wanted * root, rcond=None)[0]
        if (found >= 0).all():
            return found
        used &= found >= 0


def _figures(
    layers: Layers, several: Layers, tiers: tuple[str, ...], line: Line
) -> dict[str, dict[str, Any]]:
    """Tiers of the receipt; `residual` is the mean error of the fit over the mean layer."""
    held = layers.of(tiers)
    error = np.abs(line.told(held) - layers.time_us).mean() / layers.time_us.mean()
    more = several.more_rows.sum()
    rest = (several.time_us - line.told(several.of(tiers))).sum()
    row_us = max(0.0, float(rest / more)) if more else 0.0
    found = {}
    for index, tier in enumerate(tiers):
        with_it = held[:, index] > 0
        found[tier] = {
            "call_us": round(float(line.call[index]), 2),
            "expert_us": round(float(line.each[index]), 2),
            "row_us": round(row_us, 2),
            "hops": int(with_it.sum()),
            "p50_us": round(float(np.median(layers.time_us[with_it])), 1),
            "residual": round(float(error), 4),
        }
    return found
