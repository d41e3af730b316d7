"""The simulator: a trace replayed on a placement map, with a pod's costs. All of it is modelled.

layer = the slowest processor and contention (k3d.placement.costs); token = the sum over its layers
floor = the same with experts read in no time: what calling the tiers costs alone
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from k3d.errors import ConfigError
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
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER
from k3d.placement.trace import Trace

ROWS = (1, 2, 3, 4, 6, 8)
SAMPLE_TOKENS = 2048


@dataclass(frozen=True)
class Spread:
    """A distribution, in microseconds."""

    mean_us: float
    p50_us: float
    p99_us: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Spread:
        p50, p99 = np.quantile(values, (0.5, 0.99), method="inverted_cdf")
        return cls(float(values.mean()), float(p50), float(p99))


@dataclass(frozen=True)
class TierUse:
    """One tier. `share` is of all picks; `called` and `slowest` are shares of a pass's layers.

    `experts_a_call` are those read when it is called, `time_us` its time in a pass.
    """

    tier: str
    held: int
    share: float
    called: float
    experts_a_call: float
    time_us: float
    slowest: float


@dataclass(frozen=True)
class BusiestSpark:
    """The spark that a layer waits for: each a slice of every expert, or whole experts."""

    sliced: Spread
    whole: Spread
    most_whole: int


@dataclass(frozen=True)
class RowsCost:
    """A pass of `rows` rows."""

    rows: int
    mean_us: float


@dataclass(frozen=True)
class Simulation:
    """What a map costs on a trace. `token` is of a pass of `rows` rows."""

    tokens: int
    rows: int
    layers: int
    token: Spread
    floor_us: float
    tiers: tuple[TierUse, ...]
    busiest: BusiestSpark | None
    by_rows: tuple[RowsCost, ...]

    def tokens_per_s(self, station_us: float) -> float | None:
        """Of one lane, with so many microseconds of the Station's own a layer; None when all of it
        takes no time. A pass of several rows counts them all, as if every draft were kept."""
        total_us = self.token.mean_us + self.layers * station_us
        return 1e6 * self.rows / total_us if total_us else None

    @property
    def row_line(self) -> tuple[float, float]:
        """(a, b) of the line a + b rows through `by_rows`, in microseconds."""
        if len(self.by_rows) < 2:
            return self.token.mean_us, 0.0
        rows = [cost.rows for cost in self.by_rows]
        slope, start = np.polyfit(rows, [cost.mean_us for cost in self.by_rows], 1)
        return float(start), float(slope)


def simulate(
    placed: PlacementMap, trace: Trace, costs: Costs, *, rows: int = 1, by_rows: bool = True
) -> Simulation:
    """Replay a trace on a map. Raises ConfigError when they are not of one model and pod."""
    check_same_model(placed, trace)
    home, copy = homes(placed, costs)
    passes = Passes(trace, rows)
    rates = Rates.of(costs)
    total = np.zeros(passes.count)
    floor = 0.0
    tally = _Tally(passes.count, rates)
    sparks = _Sparks(costs, home)
    for index in range(len(trace.layers)):
        entries = passes.layer(index)
        load = loads(entries, home[index], rates, copy[index])
        times = _spark_times(load, sparks, entries, index, costs)
        busy = processor_times(times, rates)
        total += layer_times(busy, rates)
        calls = processor_times((load.experts > 0) * rates.call, rates)
        floor += layer_times(calls, rates).mean()
        tally.add(load, times, busy)
    held = np.bincount(home.ravel(), minlength=rates.tiers)
    return Simulation(
        tokens=trace.tokens,
        rows=rows,
        layers=len(trace.layers),
        token=Spread.of(total),
        floor_us=float(floor),
        tiers=tally.uses(costs.names, held, len(trace.layers)),
        busiest=sparks.busiest(),
        by_rows=_by_rows(placed, trace, costs) if by_rows else (),
    )


def check_same_model(placed: PlacementMap, trace: Trace) -> None:
    """Raises ConfigError unless a map and a trace have the same layers and experts."""
    if (placed.layers, placed.experts) != (trace.layers, trace.experts):
        raise ConfigError(
            f"the map places {len(placed.layers)} layers of {placed.experts} experts, the trace "
            f"is of {len(trace.layers)} of {trace.experts}",
            hint="use a map and a trace of one model",
        )


def homes(placed: PlacementMap, costs: Costs) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Tier numbers of `costs` u8 [layers, experts]: of each expert, and of its copy or NOWHERE.

    Raises ConfigError for a map with experts in a tier that the pod does not have.
    """
    placed = placed.with_tiers(costs.names)
    shape = (len(placed.layers), placed.experts)
    home = np.frombuffer(placed.tier_of, np.uint8).reshape(shape).copy()
    copy = np.full(shape, NOWHERE, np.uint8)
    for position, tier, _ in placed.copies:
        copy.reshape(-1)[position] = tier
    return home, copy


class _Sparks:
    """How the experts of a layer on the sparks spread over them when each is whole on one.

    They are dealt in turns, in the order of their slots: as many of a layer to each spark.
    """

    def __init__(self, costs: Costs, home: NDArray[np.uint8]) -> None:
        self._costs = costs
        self._tier = costs.names.index(SPARK_TIER) if SPARK_TIER in costs.names else None
        self._sliced: list[NDArray[np.float64]] = []
        self._whole: list[NDArray[np.float64]] = []
        self._most = 0
        if self._tier is not None:
            held = home == self._tier
            self.spark_of = np.where(held, (held.cumsum(axis=1) - 1) % max(1, costs.sparks), -1)

    @property
    def tier(self) -> int | None:
        return self._tier

    def note(self, entries_owner: np.ndarray, spark: np.ndarray, load: LayerLoads) -> np.ndarray:
        """Time of the busiest spark with whole experts, f64 [passes]; keeps it and the sliced."""
        assert self._tier is not None
        cost = self._costs.tiers[self._tier]
        count = max(1, self._costs.sparks)
        here = spark >= 0
        key = entries_owner[here].astype(np.int64) * count + spark[here]
        each = np.bincount(key, minlength=len(load.times) * count).reshape(-1, count)
        most = each.max(axis=1)
        called = load.experts[:, self._tier]
        more = load.more_rows[:, self._tier] * cost.row_us
        whole = (most > 0) * cost.call_us + most * cost.whole_us + more
        sliced = (called > 0) * cost.call_us + called * cost.slice_us + more
        self._whole.append(whole[called > 0])
        self._sliced.append(sliced[called > 0])
        self._most = max(self._most, int(most.max(initial=0)))
        return whole

    def busiest(self) -> BusiestSpark | None:
        """None when the sparks are never called."""
        if not self._sliced or not sum(map(len, self._sliced)):
            return None
        sliced, whole = np.concatenate(self._sliced), np.concatenate(self._whole)
        return BusiestSpark(Spread.of(sliced), Spread.of(whole), self._most)


def _spark_times(
    load: LayerLoads, sparks: _Sparks, entries: LayerEntries, index: int, costs: Costs
) -> NDArray[np.float64]:
    """Tier times f64 [passes, tiers]; with whole experts a layer waits for the busiest spark."""
    if sparks.tier is None:
        return load.times
    whole = sparks.note(entries.owner, sparks.spark_of[index][entries.expert], load)
    if costs.cut == "sliced":
        return load.times
    times = load.times.copy()
    times[:, sparks.tier] = whole
    return times


class _Tally:
    """Sums over layers and passes, a tier each."""

    def __init__(self, passes: int, rates: Rates) -> None:
        self._passes = passes
        self._rates = rates
        self._picks = np.zeros(rates.tiers)
        self._experts = np.zeros(rates.tiers)
        self._calls = np.zeros(rates.tiers)
        self._time = np.zeros(rates.tiers)
        self._slowest = np.zeros(rates.tiers)

    def add(self, load: LayerLoads, times: np.ndarray, busy: np.ndarray) -> None:
        called = load.experts > 0
        self._picks += (load.experts + load.more_rows).sum(axis=0)
        self._experts += load.experts.sum(axis=0)
        self._calls += called.sum(axis=0)
        self._time += times.sum(axis=0)
        waited = busy.argmax(axis=1)[:, None] == self._rates.processor[None]
        self._slowest += (waited & called).sum(axis=0)

    def uses(self, names: tuple[str, ...], held: np.ndarray, layers: int) -> tuple[TierUse, ...]:
        total = self._passes * layers
        return tuple(
            TierUse(
                tier=name,
                held=int(held[tier]),
                share=float(self._picks[tier] / self._picks.sum()),
                called=float(self._calls[tier] / total),
                experts_a_call=float(self._experts[tier] / max(1, self._calls[tier])),
                time_us=float(self._time[tier] / self._passes),
                slowest=float(self._slowest[tier] / total),
            )
            for tier, name in enumerate(names)
        )


def _by_rows(placed: PlacementMap, trace: Trace, costs: Costs) -> tuple[RowsCost, ...]:
    """Mean time of a pass by its rows, on stretches of the trace."""
    sample = trace.sampled(SAMPLE_TOKENS)
    longest = int(np.bincount(np.unique(sample.sequence, return_inverse=True)[1]).max())
    return tuple(
        RowsCost(rows, simulate(placed, sample, costs, rows=rows, by_rows=False).token.mean_us)
        for rows in ROWS
        if rows <= longest
    )
