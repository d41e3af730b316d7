"""What tiers cost, fitted to timed layers (the model: k3d.placement.costs).

| map | a layer takes | says |
| --- | --- | --- |
| `own`: the Station's tiers alike | the sum over them of call + experts x expert | their costs |
| `sparks`: all on the sparks | call + experts x slice | the two together |
| `mixed`: half on the sparks | the slower side + contention x the faster | each, and contention |

Passes of several rows on `own` and on `sparks` say what a further row of an expert costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def columns(self, tiers: Sequence[str]) -> list[int]:
        return [self.tiers.index(tier) for tier in tiers]


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
    """Layers of one map after another."""
    return Layers(
        parts[0].tiers,
        np.concatenate([part.experts for part in parts]),
        np.concatenate([part.more_rows for part in parts]),
        np.concatenate([part.time_us for part in parts]),
    )


def fitted(served: Mapping[str, Layers], own: tuple[str, ...], sparks: bool) -> Fitted:
    """Costs of each tier from the layers of each map (`own`, `sparks`, `mixed`, "NAME, rows")."""
    tiers: dict[str, dict[str, Any]] = {}
    station = Line(np.zeros(0), np.zeros(0))
    if own:
        layers = served["own"].usual
        columns = layers.columns(own)
        station = _turns(layers.experts[:, columns], layers.time_us)
        tiers |= _figures(layers, served["own, rows"].usual, own, station)
    if not sparks:
        return Fitted(tiers, 0.0)
    alone = served["sparks"].usual
    spark, contention = _sparks(alone, served, own, station)
    tiers |= _figures(alone, served["sparks, rows"].usual, (SPARK_TIER,), spark)
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


def _sparks(
    alone: Layers, served: Mapping[str, Layers], own: tuple[str, ...], station: Line
) -> tuple[Line, float]:
    """The sparks' costs and contention: of layers of theirs alone and of mixed ones.

    For each contention the rest is linear once it is known which side of a layer is the slower
    one, which is guessed and guessed again; the contention that leaves the least is taken.
    """
    column = alone.columns((SPARK_TIER,))
    held, taken = alone.experts[:, column], alone.time_us
    beside = np.zeros(len(taken))
    if "mixed" in served:
        mixed = served["mixed"].usual
        held = np.concatenate([held, mixed.experts[:, mixed.columns((SPARK_TIER,))]])
        taken = np.concatenate([taken, mixed.time_us])
        beside = np.concatenate([beside, station.told(mixed.experts[:, mixed.columns(own)])])
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
    layers: Layers, rows: Layers, tiers: tuple[str, ...], line: Line
) -> dict[str, dict[str, Any]]:
    """Tiers of the receipt; `residual` is the mean error of the fit over the mean layer."""
    columns = layers.columns(tiers)
    told = line.told(layers.experts[:, columns])
    error = np.abs(told - layers.time_us).mean() / layers.time_us.mean()
    row_us = _row_us(rows, columns, line)
    found = {}
    for index, tier in enumerate(tiers):
        with_it = layers.experts[:, columns[index]] > 0
        found[tier] = {
            "call_us": round(float(line.call[index]), 2),
            "expert_us": round(float(line.each[index]), 2),
            "row_us": round(row_us, 2),
            "hops": int(with_it.sum()),
            "p50_us": round(float(np.median(layers.time_us[with_it])), 1),
            "residual": round(float(error), 4),
        }
    return found


def _row_us(layers: Layers, columns: list[int], line: Line) -> float:
    """What a further row of an expert costs, from passes of several rows."""
    more = layers.more_rows[:, columns].sum(axis=1)
    rest = layers.time_us - line.told(layers.experts[:, columns])
    return max(0.0, float(rest.sum() / more.sum())) if more.sum() else 0.0
