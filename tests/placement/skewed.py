"""Traces of made traffic, and costs, for tests of planners and the simulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from k3d.placement.costs import Costs, TierCost
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.trace import Trace, TraceHeader

PUBLISHED = {
    "hbm": (0.0, 3.0, 3.0),
    "rtx": (93.0, 10.4, 10.4),
    "grace": (0.0, 48.0, 48.0),
    "spark": (73.0, 77.0, 9.44),
}


def skewed_trace(
    seed: int, *, layers: int = 6, experts: int = 896, top_k: int = 16, tokens: int = 1200,
    skew: float = 0.8, apart: float = 0.5,
) -> Trace:  # fmt: skip
    """Each layer ranks its experts anew; the n-th hottest has weight n^-s, s up to a part `apart`
    from `skew`. Sequences of 100 tokens."""
    rng = np.random.default_rng(seed)
    ids = np.empty((layers, tokens, top_k), np.uint16)
    for layer in range(layers):
        weight = rng.permutation(
            np.arange(1.0, experts + 1) ** -(skew * rng.uniform(1 - apart, 1 + apart))
        )
        # The Gumbel trick: the largest of log weight + noise are a draw without replacement.
        noise = -np.log(-np.log(rng.random((tokens, experts))))
        chosen = np.argpartition(-(np.log(weight) + noise), top_k, axis=1)[:, :top_k]
        ids[layer] = np.sort(chosen, axis=1)
    return trace_of(ids, experts)


def trace_of(ids: np.ndarray, experts: int, sequence: np.ndarray | None = None) -> Trace:
    """A trace of ids [layers, tokens, top_k], layers numbered from 1."""
    layers, tokens, top_k = ids.shape
    header = TraceHeader(
        layers=tuple(range(1, layers + 1)), experts=experts, top_k=top_k, weights=False
    )
    numbers = np.arange(tokens) // 100 if sequence is None else sequence
    return Trace(header, ids.astype(np.uint16), None, numbers.astype(np.uint32))


def published_costs(sparks: int = 8, tiers: Sequence[str] = tuple(PUBLISHED)) -> Costs:
    """The figures of the pod of a Station and eight Sparks, in slices."""
    found = []
    for tier in tiers:
        call, whole, slice_us = PUBLISHED[tier]
        found.append(
            TierCost(tier, tier, call, whole, 0.0, whole, slice_us, "reported", "published")
        )
    return Costs(tuple(found), sparks, "sliced").with_cut("sliced")


def map_of(homes: Sequence[Sequence[str]], tiers: Sequence[str] = tuple(PUBLISHED)) -> PlacementMap:
    """A map from the name of each expert's tier, a row a layer; layers numbered from 1."""
    numbers = bytes(tiers.index(tier) for row in homes for tier in row)
    return number_slots(1, tiers, range(1, len(homes) + 1), len(homes[0]), numbers)
