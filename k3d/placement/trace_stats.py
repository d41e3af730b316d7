"""What a trace says of its traffic: how skewed it is, and how much of it another one shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from k3d.errors import ConfigError
from k3d.placement.trace import Trace

DECILES = tuple(range(10, 101, 10))


@dataclass(frozen=True)
class LayerUse:
    """One layer. `effective` is how many equally used experts would be as varied (2^entropy)."""

    layer: int
    used: int
    effective: float
    hottest: int
    hottest_share: float


@dataclass(frozen=True)
class TraceStats:
    """`decile_share[i]` is the share of picks that the hottest 10 (i + 1) % of experts take."""

    tokens: int
    picks: int
    experts: int
    never: int
    decile_share: tuple[float, ...]
    layers: tuple[LayerUse, ...]


@dataclass(frozen=True)
class Overlap:
    """Two populations' hot sets of `hot` experts each.

    `shared` is the part of them in both. `own_share` is what b's own hot set takes of its picks,
    `other_share` what a's takes of them: the loss of serving b with a map made for a.
    """

    hot: int
    shared: float
    by_chance: float
    own_share: float
    other_share: float
    by_layer: tuple[float, ...]


def stats(trace: Trace) -> TraceStats:
    """Figures of a trace, all of them counted."""
    counts = trace.counts
    ordered = np.sort(counts.ravel())[::-1].cumsum()
    total = int(ordered[-1])
    cuts = [max(1, len(ordered) * part // 100) - 1 for part in DECILES]
    return TraceStats(
        tokens=trace.tokens,
        picks=total,
        experts=counts.size,
        never=int((counts == 0).sum()),
        decile_share=tuple(float(ordered[cut] / total) for cut in cuts),
        layers=tuple(
            _layer_use(layer, row) for layer, row in zip(trace.layers, counts, strict=True)
        ),
    )


def overlap(a: Trace, b: Trace, hot: int) -> Overlap:
    """How far a's hottest experts are b's. Raises ConfigError for traces of different models."""
    if (a.layers, a.experts) != (b.layers, b.experts):
        raise ConfigError(
            f"the traces are of different models: {len(a.layers)} layers of {a.experts} experts "
            f"and {len(b.layers)} of {b.experts}",
            hint="compare traces of one model",
        )
    total = a.counts.size
    if not 0 < hot <= total:
        raise ConfigError(f"a hot set of {hot} experts of {total}", hint=f"use 1 to {total}")
    hot_a, hot_b = hottest(a.counts, hot), hottest(b.counts, hot)
    both = hot_a & hot_b
    picks = b.counts
    in_b = hot_b.sum(axis=1)
    return Overlap(
        hot=hot,
        shared=float(both.sum() / hot),
        by_chance=hot / total,
        own_share=float(picks[hot_b].sum() / picks.sum()),
        other_share=float(picks[hot_a].sum() / picks.sum()),
        by_layer=tuple(float(n) for n in both.sum(axis=1) / np.maximum(1, in_b)),
    )


def hottest(counts: np.ndarray, hot: int) -> np.ndarray:
    """bool [layers, experts]: the `hot` most chosen of counts; ties go to the first."""
    order = np.argsort(-counts.ravel(), kind="stable")
    chosen = np.zeros(counts.size, bool)
    chosen[order[:hot]] = True
    return chosen.reshape(counts.shape)


def _layer_use(layer: int, counts: np.ndarray) -> LayerUse:
    share = counts[counts > 0] / counts.sum()
    hottest = int(counts.argmax())
    return LayerUse(
        layer=layer,
        used=len(share),
        effective=float(2 ** -(share * np.log2(share)).sum()),
        hottest=hottest,
        hottest_share=float(counts[hottest] / counts.sum()),
    )
