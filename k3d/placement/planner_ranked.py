"""Planners that rank experts by how often a trace chose them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from k3d.placement.policy import PlacementPolicy, interleaved, tier_counts


def counts_in_order(
    slots: Mapping[str, int], policy: PlacementPolicy, order: Sequence[str], total: int
) -> list[tuple[int, int]]:
    """(tier number, experts) of each tier, in `order`. Raises ConfigError when slots are short."""
    ordered = msgspec.structs.replace(policy, order=tuple(order))
    counts = tier_counts(ordered, slots, total)
    tiers = tuple(slots)
    return [(tiers.index(tier), counts.get(tier, 0)) for tier in order if tier in tiers]


def by_heat(
    counts: NDArray[np.int64],
    slots: Mapping[str, int],
    policy: PlacementPolicy,
    order: Sequence[str],
) -> NDArray[np.uint8]:
    """The hottest experts of all layers in the first tier: tier numbers [layers, experts].

    Ties go by layer, then expert.
    """
    ranked = np.argsort(-counts.ravel(), kind="stable")
    places = counts_in_order(slots, policy, order, counts.size)
    home = np.empty(counts.size, np.uint8)
    numbers = np.array([number for number, _ in places], np.uint8)
    home[ranked] = np.repeat(numbers, [held for _, held in places])
    return home.reshape(counts.shape)


def by_layer(
    counts: NDArray[np.int64],
    slots: Mapping[str, int],
    policy: PlacementPolicy,
    order: Sequence[str],
) -> NDArray[np.uint8]:
    """As many experts of every layer in each tier, to within two; the hottest in the first."""
    layers, experts = counts.shape
    places = counts_in_order(slots, policy, order, counts.size)
    tiers = len(slots)
    wanted = [0] * tiers
    for number, held in places:
        wanted[number] = held
    spread = interleaved(wanted, [number for number, _ in places])
    quota = np.stack([np.bincount(row, minlength=tiers) for row in _rows(spread, layers, experts)])
    ranked = np.argsort(-counts, axis=1, kind="stable")
    numbers = np.array([number for number, _ in places], np.uint8)
    home = np.empty(counts.shape, np.uint8)
    for layer in range(layers):
        home[layer, ranked[layer]] = np.repeat(numbers, quota[layer, numbers])
    return home


def _rows(spread: bytes, layers: int, experts: int) -> NDArray[np.uint8]:
    return np.frombuffer(spread, np.uint8).reshape(layers, experts)
