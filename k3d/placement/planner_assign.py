"""Assigning experts to tiers at the least cost within their slots.

Prices: an expert takes the tier with the least cost plus price; a tier that too many take raises
its price just enough to lose the rest. With a handful of tiers that settles in a few rounds. Ties
may leave a tier with more than it holds or less: the cheapest are moved, and then any two experts
that are better off with each other's tiers are exchanged.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

ROUNDS = 200
EXCHANGES = 20


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
    fitted = _fitted(costs + price, chosen, capacity)
    return _exchanged(costs, fitted, capacity).astype(np.uint8)


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


def _exchanged(
    costs: NDArray[np.float64], chosen: NDArray[np.intp], capacity: NDArray[np.int64]
) -> NDArray[np.intp]:
    """`chosen` with moves into free slots and exchanges of two that lessen the sum."""
    chosen = chosen.copy()
    lines = np.arange(len(chosen))
    for _ in range(EXCHANGES):
        before = chosen.copy()
        for a, b in itertools.permutations(range(len(capacity)), 2):
            if capacity[a] <= 0 or capacity[b] <= 0:
                continue
            change = costs[lines, b] - costs[lines, a]
            here, there = np.flatnonzero(chosen == a), np.flatnonzero(chosen == b)
            here = here[np.argsort(change[here], kind="stable")]
            there = there[np.argsort(-change[there], kind="stable")]
            free = int(capacity[b] - len(there))
            alone = here[:free][change[here[:free]] < 0]
            chosen[alone] = b
            here = here[len(alone) :]
            pairs = min(len(here), len(there))
            better = change[here[:pairs]] - change[there[:pairs]] < -1e-9
            chosen[here[:pairs][better]] = b
            chosen[there[:pairs][better]] = a
        if (before == chosen).all():
            break
    return chosen
