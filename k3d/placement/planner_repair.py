"""Per-layer repair: exchanges between layers until no layer has too few or too many in a tier.

An exchange gives a layer with too many experts in a tier someone else's place and the other way
round, so every tier keeps its count. The pair that differs least in heat is exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from k3d.errors import ConfigError
from k3d.placement.budget import TierName
from k3d.placement.policy import LayerBounds


def repair(
    home: NDArray[np.uint8],
    counts: NDArray[np.int64],
    tiers: Sequence[str],
    bounds: Mapping[TierName, LayerBounds],
    layers: Sequence[int],
) -> tuple[NDArray[np.uint8], int]:
    """A copy of `home` within the bounds, and how many experts were moved.

    Raises ConfigError naming the tier and layer that cannot be brought within them.
    """
    home = home.copy()
    if not bounds:
        return home, 0
    least, most = _limits(tiers, bounds, home, layers)
    held = np.stack([(home == tier).sum(axis=1) for tier in range(len(tiers))], axis=1)
    moved = 0
    while True:
        over, under = held - most, least - held
        wrong = np.maximum(over, under)
        if wrong.max() <= 0:
            return home, moved
        layer, tier = divmod(int(wrong.argmax()), len(tiers))
        exchange = _exchange(held, least, most, layer, tier, bool(over[layer, tier] > 0))
        if exchange is None:
            limit = "most" if over[layer, tier] > 0 else "least"
            raise ConfigError(
                f"layer.{tiers[tier]}.{limit}: layer {layers[layer]} has {held[layer, tier]} "
                f"experts in {tiers[tier]} and no other layer can exchange with it",
                hint="widen the bounds, or give the tier other slots",
            )
        other, partner = exchange
        gives, takes = (tier, partner) if over[layer, tier] > 0 else (partner, tier)
        _swap(home, counts, layer, other, gives, takes)
        for where, down, up in ((layer, gives, takes), (other, takes, gives)):
            held[where, down] -= 1
            held[where, up] += 1
        moved += 2


def _limits(
    tiers: Sequence[str],
    bounds: Mapping[TierName, LayerBounds],
    home: NDArray[np.uint8],
    layers: Sequence[int],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    experts = home.shape[1]
    least = np.zeros(len(tiers), np.int64)
    most = np.full(len(tiers), experts, np.int64)
    for tier, bound in bounds.items():
        if tier in tiers:
            least[tiers.index(tier)] = bound.least
            most[tiers.index(tier)] = experts if bound.most is None else bound.most
    for number, tier in enumerate(tiers):
        total = int((home == number).sum())
        if not least[number] * len(layers) <= total <= most[number] * len(layers):
            raise ConfigError(
                f"layer.{tier}: {total} experts in {tier} cannot be {least[number]} to "
                f"{most[number]} of each of {len(layers)} layers",
                hint="widen the bounds, or give the tier other slots",
            )
    return least, most


def _exchange(
    held: NDArray[np.int64],
    least: NDArray[np.int64],
    most: NDArray[np.int64],
    layer: int,
    tier: int,
    too_many: bool,
) -> tuple[int, int] | None:
    """(another layer, another tier) to exchange with that makes nothing worse, or None."""
    sign = 1 if too_many else -1
    best: tuple[float, int, int] | None = None
    for partner in range(held.shape[1]):
        if partner == tier:
            continue
        # Room for one more (or fewer) of `tier` there, and the other way round of `partner`.
        room = (most[tier] - held[:, tier]) if too_many else (held[:, tier] - least[tier])
        give = (
            (held[:, partner] - least[partner]) if too_many else (most[partner] - held[:, partner])
        )
        own = (
            (most[partner] - held[layer, partner])
            if too_many
            else (held[layer, partner] - least[partner])
        )
        if own <= 0:
            continue
        fit = np.minimum(room, give)
        fit[layer] = 0
        other = int(fit.argmax())
        gain = float(fit[other]) + 0.001 * sign * float(held[layer, partner])
        if fit[other] > 0 and (best is None or gain > best[0]):
            best = (gain, other, partner)
    return None if best is None else (best[1], best[2])


def _swap(
    home: NDArray[np.uint8],
    counts: NDArray[np.int64],
    layer: int,
    other: int,
    gives: int,
    takes: int,
) -> None:
    """One expert of `layer` goes from `gives` to `takes`, one of `other` back; alike in heat."""
    mine = np.flatnonzero(home[layer] == gives)
    theirs = np.flatnonzero(home[other] == takes)
    mine = mine[np.argsort(counts[layer, mine], kind="stable")]
    theirs = theirs[np.argsort(counts[other, theirs], kind="stable")]
    near = np.searchsorted(counts[other, theirs], counts[layer, mine]).clip(0, len(theirs) - 1)
    apart = np.abs(counts[other, theirs[near]] - counts[layer, mine])
    pick = int(apart.argmin())
    home[layer, mine[pick]] = takes
    home[other, theirs[near[pick]]] = gives
