"""The optimiser: the map with the least expected time of a token on a trace.

It starts from the best of the rules (every order of the tiers, over all layers or within each)
and then moves experts: the *gain* of a move is what it would change of the sampled passes' times
if nothing else moved. A part of all experts at a time is assigned anew, the least sum of gains
within every tier's slots; what does not shorten the mean is taken back and tried with fewer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from k3d.placement.costs import Costs
from k3d.placement.passes import (
    NOWHERE,
    LayerEntries,
    LayerLoads,
    Passes,
    Rates,
    layer_times,
    loads,
    processor_times,
)
from k3d.placement.planner_assign import assign
from k3d.placement.planner_ranked import by_heat, by_layer
from k3d.placement.policy import PlacementPolicy
from k3d.placement.trace import Trace

SAMPLE_ENTRIES = 8_000_000
SCREEN_TOKENS = 1024
SWEEPS = 12
PRIOR_PICKS = 30.0
FIRST_PART, LAST_PART = 0.125, 0.005


@dataclass(frozen=True)
class Optimised:
    """Tier numbers u8 [layers, experts], the order started from, copies (position, tier)."""

    home: NDArray[np.uint8]
    order: tuple[str, ...]
    notes: tuple[str, ...]
    copies: tuple[tuple[int, int], ...]


class Objective:
    """The mean time of a pass of a sample, and what moving an expert would change of it."""

    def __init__(self, trace: Trace, rates: Rates, rows: int, tokens: int) -> None:
        passes = Passes(trace.sampled(tokens), rows)
        self.rates = rates
        self.passes = passes.count
        self.shape = (len(trace.layers), trace.experts)
        self._share = trace.counts / trace.counts.sum(axis=1, keepdims=True)
        self._layers = [passes.layer(index) for index in range(len(trace.layers))]

    def mean_us(self, home: NDArray[np.uint8], copy: NDArray[np.uint8] | None = None) -> float:
        """Mean time of a pass with experts at `home` [layers, experts]."""
        total = 0.0
        for index, entries in enumerate(self._layers):
            load = loads(entries, home[index], self.rates, None if copy is None else copy[index])
            total += float(load.layer_times(self.rates).sum())
        return total / self.passes

    def gains(self, home: NDArray[np.uint8], *, only_better: bool = False) -> NDArray[np.float64]:
        """f64 [layers, experts, tiers]: change of the mean when one expert moves to a tier.

        With `only_better` passes that would get slower count as if they kept the first home: what
        a copy there is worth.
        """
        found = np.empty((*self.shape, self.rates.tiers))
        for index, entries in enumerate(self._layers):
            load = loads(entries, home[index], self.rates)
            per_pick = _layer_gains(entries, home[index], load, self.rates, only_better)
            often = self._share[index] * len(entries.expert) / self.passes
            found[index] = per_pick * often[:, None]
        return found


def optimise(
    trace: Trace,
    slots: Mapping[str, int],
    policy: PlacementPolicy,
    costs: Costs,
    *,
    seed: int = 0,
    sweeps: int = SWEEPS,
) -> Optimised:
    """Plan. Raises ConfigError when the slots are short. The same arguments give the same map."""
    rates = Rates.of(costs)
    tokens = max(1, SAMPLE_ENTRIES // (len(trace.layers) * trace.top_k))
    home, order, rule = _best_rule(trace, slots, policy, costs)
    objective = Objective(trace, rates, policy.rows, tokens)
    capacity = np.array([slots[tier] for tier in costs.names])
    begun = best = objective.mean_us(home)
    rng = np.random.default_rng(seed)
    part = FIRST_PART
    for _ in range(sweeps):
        gains = objective.gains(home)
        tried = _moved(home, gains, capacity, rng.random(home.shape) < part)
        mean = objective.mean_us(tried)
        if mean < best:
            home, best = tried, mean
            continue
        part /= 2
        if part < LAST_PART:
            break
    notes = [
        f"began with {rule}, tiers in the order {', '.join(order)}",
        f"{begun:.1f} us a pass at first, {best:.1f} in the end (modelled, on the sample)",
    ]
    copies: tuple[tuple[int, int], ...] = ()
    if policy.replicate:
        copies, mean = _copies(objective, home, capacity)
        notes.append(f"{len(copies)} second homes: {mean:.1f} us a pass (modelled)")
    return Optimised(home, order, tuple(notes), copies)


def _best_rule(
    trace: Trace, slots: Mapping[str, int], policy: PlacementPolicy, costs: Costs
) -> tuple[NDArray[np.uint8], tuple[str, ...], str]:
    """The best ranking: its homes, its order of tiers and its name."""
    screen = Objective(trace, Rates.of(costs), policy.rows, SCREEN_TOKENS * policy.rows)
    found: tuple[float, NDArray[np.uint8], tuple[str, ...], str] | None = None
    for order in itertools.permutations(costs.names):
        for rule, name in ((by_heat, "heat over all layers"), (by_layer, "heat in each layer")):
            home = rule(trace.counts, slots, policy, order)
            mean = screen.mean_us(home)
            if found is None or mean < found[0]:
                found = mean, home, order, name
    assert found is not None  # costs name at least one tier
    return found[1:]


def _moved(
    home: NDArray[np.uint8],
    gains: NDArray[np.float64],
    capacity: NDArray[np.int64],
    free: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """`home` with the experts of `free` assigned anew within what the others leave of the slots."""
    held = np.bincount(home[~free].ravel(), minlength=len(capacity))
    moved = home.copy()
    moved[free] = assign(gains[free], capacity - held, home[free])
    return moved


def _copies(
    objective: Objective, home: NDArray[np.uint8], capacity: NDArray[np.int64]
) -> tuple[tuple[tuple[int, int], ...], float]:
    """Second homes for what gains most, one an expert, as long as slots are left; and the mean."""
    left = capacity - np.bincount(home.ravel(), minlength=len(capacity))
    gains = objective.gains(home, only_better=True).reshape(-1, len(capacity))
    gains[np.arange(len(gains)), home.ravel()] = 0.0
    copy = np.full(home.size, NOWHERE, np.uint8)
    for flat in np.argsort(gains, axis=None, kind="stable"):
        position, tier = divmod(int(flat), len(capacity))
        if gains[position, tier] >= 0.0 or not left.any():
            break
        if left[tier] and copy[position] == NOWHERE:
            copy[position] = tier
            left[tier] -= 1
    copies = tuple((int(place), int(copy[place])) for place in np.flatnonzero(copy != NOWHERE))
    return copies, objective.mean_us(home, copy.reshape(home.shape))


def _layer_gains(
    entries: LayerEntries,
    home: NDArray[np.uint8],
    load: LayerLoads,
    rates: Rates,
    only_better: bool,
) -> NDArray[np.float64]:
    """f64 [experts, tiers]: change of a pass's time for each of an expert's picks in the sample.

    Drawn towards the mean of all picks of its tier: of a rare expert a sample says little.
    """
    tiers, experts = rates.tiers, len(home)
    at = home[entries.expert].astype(np.int64)
    busy = processor_times(load.times, rates)
    current = layer_times(busy, rates)
    own = np.zeros(experts * tiers)
    for rows in np.unique(entries.rows):
        mine = entries.rows == rows
        change = _changes(load, busy, current, rates, int(rows) - 1)
        if only_better:
            np.minimum(change, 0.0, out=change)
        each = change[entries.owner[mine], at[mine]]
        keys = entries.expert[mine].astype(np.int64)[:, None] * tiers + np.arange(tiers)
        own += np.bincount(keys.ravel(), each.ravel(), minlength=len(own))
    own = own.reshape(experts, tiers)
    picks = np.bincount(entries.expert, minlength=experts)
    of_tier = np.zeros((tiers, tiers))
    for tier in range(tiers):
        here = home == tier
        of_tier[tier] = own[here].sum(axis=0) / max(1, picks[here].sum())
    return (own + PRIOR_PICKS * of_tier[home]) / (picks + PRIOR_PICKS)[:, None]


def _changes(
    load: LayerLoads,
    busy: NDArray[np.float64],
    current: NDArray[np.float64],
    rates: Rates,
    more: int,
) -> NDArray[np.float64]:
    """f64 [passes, from, to]: change of a pass's time when one entry moves between two tiers."""
    tiers = rates.tiers
    change = np.zeros((len(busy), tiers, tiers))
    each = rates.expert + more * rates.row
    less = each + (load.experts == 1) * rates.call
    extra = each + (load.experts == 0) * rates.call
    for source, target in itertools.permutations(range(tiers), 2):
        after = busy.copy()
        after[:, rates.processor[source]] -= less[:, source]
        after[:, rates.processor[target]] += extra[:, target]
        change[:, source, target] = layer_times(after, rates) - current
    return change
