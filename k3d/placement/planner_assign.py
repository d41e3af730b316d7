"""Assigning experts to tiers at the least cost within their slots.

Prices: an expert takes the tier with the least cost plus price; a tier that too many take raises
its price just enough to lose the rest. With a handful of tiers that settles in a few rounds; what
it leaves over is moved one by one, the cheapest first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDS = 200


def assign(
    costs: NDArray[np.float64], capacity: NDArray[np.int64], home: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Tiers u8 [experts] for costs [experts, tiers]; `capacity` [tiers] is enough for all.

    `home` [experts], the tiers they have now, wins ties.
    """
    experts, tiers = costs.shape
    lines = np.arange(experts)
    costs = costs.copy()
    costs[lines, home] -= 1e-9
    closed = capacity <= 0
    costs[:, closed] = np.inf
    price = np.zeros(tiers)
    chosen = costs.argmin(axis=1)
    for _ in range(ROUNDS):
        held = np.bincount(chosen, minlength=tiers)
        over = held - capacity
        tier = int(over.argmax())
        if over[tier] <= 0:
            break
        members = np.flatnonzero(chosen == tier)
        priced = costs[members] + price
        own = priced[:, tier].copy()
        priced[:, tier] = np.inf
        regret = priced.min(axis=1) - own
        price[tier] += np.partition(regret, over[tier] - 1)[over[tier] - 1] + 1e-9
        chosen = (costs + price).argmin(axis=1)
    return _fitted(costs + price, chosen, capacity).astype(np.uint8)


def _fitted(
    costs: NDArray[np.float64], chosen: NDArray[np.intp], capacity: NDArray[np.int64]
) -> NDArray[np.intp]:
    """`chosen` with what is over capacity moved to where there is room."""
    chosen = chosen.copy()
    held = np.bincount(chosen, minlength=len(capacity))
    for tier in np.argsort(capacity - held):
        while held[tier] > capacity[tier]:
            room = np.flatnonzero(held < capacity)
            members = np.flatnonzero(chosen == tier)
            regret = costs[np.ix_(members, room)] - costs[members, tier][:, None]
            best = regret.min(axis=1)
            count = int(min(held[tier] - capacity[tier], (capacity - held)[room].min()))
            moved = np.argsort(best, kind="stable")[:count]
            chosen[members[moved]] = room[regret[moved].argmin(axis=1)]
            held = np.bincount(chosen, minlength=len(capacity))
    return chosen
