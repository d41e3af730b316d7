"""Populations of traffic: how often each expert was chosen, and how far such counts are chance.

Tokens of one sequence choose alike, so counts of n picks say less than n independent picks would.
`spread` is how much less: the variance of the counts between sequences over that of independent
picks (a design effect). Noise is reckoned with n / spread picks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from k3d.errors import ConfigError
from k3d.placement.budget import Provenance
from k3d.placement.origin import Origin
from k3d.placement.placement_map import PlacementMap
from k3d.placement.trace import Trace, TraceHeader

MOST_GROUPS = 256
LEAST_GROUPS = 8
BLOCK_TOKENS = 64
"""Of a trace of few sequences, tokens that follow each other and are taken for one."""
MOST_LAYERS = 12
"""Layers from which the spread is reckoned."""


@dataclass(frozen=True)
class Population:
    """counts i64 [layers, experts]: picks in `tokens` tokens, `top_k` a layer and token."""

    counts: NDArray[np.int64]
    tokens: int
    top_k: int
    spread: float
    provenance: Provenance
    source: str

    @property
    def picks(self) -> float:
        """Independent picks a layer that would say as much."""
        return self.tokens * self.top_k / self.spread


def population_of(trace: Trace) -> Population:
    header = trace.header
    return Population(
        trace.counts, trace.tokens, trace.top_k, spread_of(trace), header.provenance,
        header.source or "a trace",
    )  # fmt: skip


def origin_of(found: Population, policy: str) -> Origin:
    """What a map planned for a population keeps of it."""
    return Origin(
        policy=policy,
        source=found.source,
        tokens=found.tokens,
        top_k=found.top_k,
        spread=found.spread,
        provenance=found.provenance,
        counts=tuple(found.counts.ravel().tolist()),
    )


def planned_from(placed: PlacementMap) -> Population | None:
    """The population that a map was planned from; None for a map made without a trace."""
    origin = placed.origin
    if origin is None:
        return None
    counts = np.array(origin.counts, np.int64).reshape(len(placed.layers), placed.experts)
    return Population(
        counts, origin.tokens, origin.top_k, origin.spread, origin.provenance, origin.source
    )


def spread_of(trace: Trace) -> float:
    """The design effect of a trace's sequences, 1 at least; a trace of one short sequence has no
    other figure to tell it by than 1."""
    group = _groups(trace)
    groups = int(group.max()) + 1
    if groups < 2:
        return 1.0
    tokens = np.bincount(group, minlength=groups).astype(np.float64)
    layers = np.unique(np.linspace(0, len(trace.layers) - 1, MOST_LAYERS).astype(int))
    found = [_layer_spread(trace.ids[layer], group, tokens, trace.experts) for layer in layers]
    return max(1.0, float(np.mean(found)))


def made_trace(population: Population, layers: Sequence[int], tokens: int, seed: int = 0) -> Trace:
    """A trace of `tokens` tokens that choose by the counts alone, layer by layer, for simulating
    traffic of which nothing else is known. Its provenance is `modelled`.

    Raises ConfigError when a layer has fewer chosen experts than a token needs.
    """
    rng = np.random.default_rng(seed)
    experts = population.counts.shape[1]
    ids = np.empty((len(layers), tokens, population.top_k), np.uint16)
    for row, counts in enumerate(population.counts):
        chosen = np.flatnonzero(counts)
        if len(chosen) < population.top_k:
            raise ConfigError(
                f"layer {layers[row]}: {len(chosen)} experts were chosen and a token takes "
                f"{population.top_k}",
                hint="let the pod serve more tokens first",
            )
        # The Gumbel trick: the largest of log weight + noise are a draw without replacement.
        drawn = np.log(counts[chosen]) + rng.gumbel(size=(tokens, len(chosen)))
        most = np.argpartition(-drawn, population.top_k - 1, axis=1)[:, : population.top_k]
        ids[row] = np.sort(chosen[most], axis=1)
    header = TraceHeader(
        layers=tuple(layers), experts=experts, top_k=population.top_k, weights=False,
        source=f"made from the counts of {population.source}", provenance="modelled",
    )  # fmt: skip
    return Trace(header, ids, None, np.zeros(tokens, np.uint32))


def _groups(trace: Trace) -> NDArray[np.int64]:
    """For every token, the number of the group of sequences it counts to."""
    group = np.unique(trace.sequence, return_inverse=True)[1]
    if int(group.max()) + 1 < LEAST_GROUPS:
        group = np.arange(trace.tokens) // BLOCK_TOKENS
    return group % MOST_GROUPS


def _layer_spread(
    ids: NDArray[np.uint16], group: NDArray[np.int64], tokens: NDArray[np.float64], experts: int
) -> float:
    """Of one layer: ids [tokens, top_k]."""
    groups = len(tokens)
    keys = (group[:, None] * experts + ids).ravel()
    counts = np.bincount(keys, minlength=groups * experts).reshape(groups, experts)
    share = counts.sum(axis=0) / tokens.sum()
    between = groups / (groups - 1) * ((counts - tokens[:, None] * share) ** 2).sum()
    each = share / ids.shape[1]
    independent = tokens.sum() * ids.shape[1] * (each * (1 - each)).sum()
    return float(between / independent) if independent else 1.0
