"""A trace as passes: which experts each pass of r rows reads in a layer, and what that takes.

A pass is r consecutive tokens of one sequence. An *entry* is an expert that a pass reads in the
layer, with the number of its rows. Arrays are a layer's at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from k3d.errors import ConfigError
from k3d.placement.costs import Costs
from k3d.placement.trace import Trace

NOWHERE = 255


@dataclass(frozen=True)
class LayerEntries:
    """i32 [entries] each: the pass, the expert and its rows there; `passes` is how many passes."""

    passes: int
    owner: NDArray[np.int32]
    expert: NDArray[np.int32]
    rows: NDArray[np.int32]


@dataclass(frozen=True)
class Rates:
    """Costs as arrays f64 [tiers], the processor of each tier, and how far those contend."""

    call: NDArray[np.float64]
    expert: NDArray[np.float64]
    row: NDArray[np.float64]
    processor: NDArray[np.intp]
    contention: float

    @classmethod
    def of(cls, costs: Costs) -> Rates:
        return cls(
            np.array([cost.call_us for cost in costs.tiers]),
            np.array([cost.expert_us for cost in costs.tiers]),
            np.array([cost.row_us for cost in costs.tiers]),
            np.array(costs.processors, np.intp),
            costs.contention,
        )

    @property
    def tiers(self) -> int:
        return len(self.call)

    @property
    def processors(self) -> int:
        return int(self.processor.max()) + 1


class Passes:
    """The passes of a trace."""

    def __init__(self, trace: Trace, rows: int = 1) -> None:
        """Raises ConfigError when no sequence has that many tokens."""
        self.trace = trace
        self.rows = rows
        if rows == 1:
            self._tokens = np.arange(trace.tokens)
            self.count = trace.tokens
            return
        starts = np.flatnonzero(np.diff(trace.sequence, prepend=trace.sequence[0] + 1))
        within = np.arange(trace.tokens) - np.repeat(
            starts, np.diff(np.append(starts, trace.tokens))
        )
        number = within // rows
        # The last tokens of a sequence that make no whole pass are left out.
        whole = (number + 1) * rows <= np.repeat(*_lengths(starts, trace.tokens))
        self._tokens = np.flatnonzero(whole)
        self.count = len(self._tokens) // rows
        if not self.count:
            raise ConfigError(
                f"no sequence of the trace has {rows} tokens", hint="use fewer rows a pass"
            )

    def layer(self, index: int) -> LayerEntries:
        """Entries of the layer at an index of the trace's layers."""
        ids = self.trace.ids[index][self._tokens].astype(np.int32)
        top_k = ids.shape[1]
        if self.rows == 1:
            owner = np.repeat(np.arange(self.count, dtype=np.int32), top_k)
            flat = ids.ravel()
            return LayerEntries(self.count, owner, flat, np.ones(len(flat), np.int32))
        owner = np.repeat(np.arange(self.count, dtype=np.int64), self.rows * top_k)
        keys, rows = np.unique(owner * self.trace.experts + ids.ravel(), return_counts=True)
        owner, expert = np.divmod(keys, self.trace.experts)
        return LayerEntries(
            self.count, owner.astype(np.int32), expert.astype(np.int32), rows.astype(np.int32)
        )


def _lengths(starts: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.diff(np.append(starts, tokens))
    return lengths, lengths


@dataclass(frozen=True)
class LayerLoads:
    """What each tier has to do, [passes, tiers]: experts read, rows beyond the first, its time."""

    experts: NDArray[np.int32]
    more_rows: NDArray[np.int32]
    times: NDArray[np.float64]

    def layer_times(self, rates: Rates) -> NDArray[np.float64]:
        """f64 [passes]: what each pass waits for."""
        return layer_times(processor_times(self.times, rates), rates)


def processor_times(times: NDArray[np.float64], rates: Rates) -> NDArray[np.float64]:
    """f64 [passes, processors]: tiers of one processor take turns."""
    if rates.processors == rates.tiers:
        return times
    summed = np.zeros((len(times), rates.processors))
    for tier, processor in enumerate(rates.processor):
        summed[:, processor] += times[:, tier]
    return summed


def layer_times(busy: NDArray[np.float64], rates: Rates) -> NDArray[np.float64]:
    """f64 [passes] of processors busy for [passes, processors]: the slowest, and contention."""
    slowest = busy.max(axis=1)
    return slowest + rates.contention * (busy.sum(axis=1) - slowest)


def loads(
    entries: LayerEntries,
    home: NDArray[np.uint8],
    rates: Rates,
    copy: NDArray[np.uint8] | None = None,
) -> LayerLoads:
    """The loads of a layer whose experts live at `home` u8 [experts].

    `copy` u8 [experts] is a second home, NOWHERE for none: a pass takes the one that it waits for
    less, one copied expert after the other.
    """
    at = home[entries.expert].astype(np.int64)
    if copy is not None and (copy != NOWHERE).any():
        at = _with_copies(entries, at, copy[entries.expert], rates)
    return _loads_at(entries, at, rates)


def _loads_at(entries: LayerEntries, at: NDArray[np.int64], rates: Rates) -> LayerLoads:
    size = entries.passes * rates.tiers
    key = entries.owner.astype(np.int64) * rates.tiers + at
    experts = np.bincount(key, minlength=size)
    if (entries.rows == 1).all():
        more = np.zeros(size, np.int64)
    else:
        more = np.bincount(key, entries.rows - 1, minlength=size).astype(np.int64)
    shape = (entries.passes, rates.tiers)
    experts, more = experts.reshape(shape), more.reshape(shape)
    times = experts * rates.expert + more * rates.row + (experts > 0) * rates.call
    return LayerLoads(experts.astype(np.int32), more.astype(np.int32), times)


def _with_copies(
    entries: LayerEntries, at: NDArray[np.int64], other: NDArray[np.uint8], rates: Rates
) -> NDArray[np.int64]:
    """Where each entry is served when some may choose: greedily, the n-th of every pass at once."""
    at = at.copy()
    choices = np.flatnonzero(other != NOWHERE)
    owner = entries.owner[choices]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    rank = np.arange(len(owner)) - np.repeat(starts, np.diff(np.append(starts, len(owner))))
    for turn in range(int(rank.max()) + 1):
        mine = choices[rank == turn]
        now = _loads_at(entries, at, rates)
        current = now.layer_times(rates)[entries.owner[mine]]
        moved = moved_times(entries, at, now, rates, mine, other[mine].astype(np.int64))
        better = moved < current
        at[mine[better]] = other[mine[better]]
    return at


def moved_times(
    entries: LayerEntries,
    at: NDArray[np.int64],
    now: LayerLoads,
    rates: Rates,
    which: NDArray[np.intp],
    to: NDArray[np.int64],
) -> NDArray[np.float64]:
    """f64 [which]: how long the pass of each entry takes if that entry alone moves to tier `to`."""
    owner, source = entries.owner[which], at[which]
    more = entries.rows[which] - 1
    alone = now.experts[owner, source] == 1
    busy = processor_times(now.times, rates)[owner]
    less = rates.expert[source] + more * rates.row[source] + alone * rates.call[source]
    first = now.experts[owner, to] == 0
    extra = rates.expert[to] + more * rates.row[to] + first * rates.call[to]
    lines = np.arange(len(which))
    same = source == to
    busy[lines, rates.processor[source]] -= np.where(same, 0.0, less)
    busy[lines, rates.processor[to]] += np.where(same, 0.0, extra)
    return layer_times(busy, rates)
