"""The simulator: the published arithmetic, brute force, rows, copies, whole and sliced experts."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from k3d.errors import ConfigError
from k3d.placement.costs import Cut, costs_of
from k3d.placement.placement_map import PlacementMap
from k3d.placement.planners import PlanRequest, make_plan
from k3d.placement.pod import load_pod
from k3d.placement.policy import load_policy
from k3d.placement.simulator import simulate
from k3d.placement.trace import Trace
from tests.placement.skewed import PUBLISHED, map_of, published_costs, skewed_trace, trace_of


def _nine_on_the_sparks() -> tuple[PlacementMap, Trace]:
    """One layer whose token picks nine experts of the sparks and seven of hbm."""
    placed = map_of([["spark"] * 64 + ["hbm"] * 32])
    # Dealt in turns over eight sparks: experts 0, 8 and 16 are on the first.
    picks = [0, 8, 16, 1, 2, 3, 12, 13, 14, *range(64, 71)]
    return placed, trace_of(np.array([[picks]]), 96)


def test_nine_sliced_experts_are_85_us_of_reading_on_every_spark() -> None:
    placed, trace = _nine_on_the_sparks()
    figures = simulate(placed, trace, published_costs(), by_rows=False)
    assert figures.busiest is not None
    assert figures.busiest.sliced.mean_us - 73 == pytest.approx(85, abs=0.5)
    assert figures.token.mean_us == figures.busiest.sliced.mean_us


def test_the_unlucky_spark_of_whole_experts_takes_three_and_a_call() -> None:
    placed, trace = _nine_on_the_sparks()
    figures = simulate(placed, trace, published_costs().with_cut("whole"), by_rows=False)
    assert figures.busiest is not None
    assert figures.busiest.whole.mean_us == 3 * 77 + 73
    assert figures.busiest.most_whole == 3
    assert figures.token.mean_us == 3 * 77 + 73


def test_the_shipped_description_has_the_published_costs() -> None:
    costs = costs_of(load_pod("station-8-sparks"))
    assert costs.sparks == 8
    for cost in costs.tiers:
        call, whole, slice_us = PUBLISHED[cost.tier]
        assert (cost.call_us, cost.whole_us, cost.slice_us) == (call, whole, slice_us)
    assert costs.with_cut("whole").ranked == ("hbm", "rtx", "grace", "spark")
    assert costs.ranked == ("hbm", "spark", "rtx", "grace")


@pytest.mark.parametrize("cut", ["sliced", "whole"])
@pytest.mark.parametrize("traffic", [0, 1, 2])
def test_the_published_order_of_maps_on_a_skewed_trace(cut: Cut, traffic: int) -> None:
    """contiguous > hot/cold > layer-balanced > cost-ranked."""
    trace = skewed_trace(traffic, layers=8, apart=0.3)
    pod = load_pod("station-8-sparks")
    part = len(trace.layers) / 92
    slots = {tier: int(held * part) + 1 for tier, held in pod.slots.items()}
    costs = costs_of(pod, cut=cut)
    means = [
        simulate(
            make_plan(PlanRequest(load_policy(name), trace, slots, costs)).placed,
            trace, costs, by_rows=False,
        ).token.mean_us
        for name in ("contiguous", "hot-cold", "layer-balanced", "cost-ranked")
    ]  # fmt: skip
    assert means == sorted(means, reverse=True)
    assert len(set(means)) == 4


def _by_hand(
    placed: PlacementMap, trace: Trace, rows: int, row_us: float, contention: float
) -> list[float]:
    """Times of passes, one pass, layer and pick at a time."""
    starts = [
        start
        for sequence in np.unique(trace.sequence)
        for members in [np.flatnonzero(trace.sequence == sequence)]
        for start in members[: len(members) // rows * rows : rows]
    ]
    times = []
    for start in starts:
        total = 0.0
        for index, layer in enumerate(trace.layers):
            picks = trace.ids[index, start : start + rows].ravel().tolist()
            spent = dict.fromkeys(placed.tiers, 0.0)
            for expert in set(picks):
                tier = placed.tier(layer, expert)
                call, whole, slice_us = PUBLISHED[tier]
                each = slice_us if tier == "spark" else whole
                spent[tier] += each + row_us * (picks.count(expert) - 1)
                spent[tier] += call if not spent.get(f"{tier} called") else 0
                spent[f"{tier} called"] = 1e-300
            slowest, *others = sorted((spent[tier] for tier in placed.tiers), reverse=True)
            total += slowest + contention * sum(others)
        times.append(total)
    return times


@pytest.mark.parametrize("contention", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_times_are_those_of_a_plain_loop(rows: int, contention: float, seed: int) -> None:
    rng = random.Random(seed)
    trace = skewed_trace(seed, layers=3, experts=24, top_k=4, tokens=90)
    trace = replace(trace, sequence=np.repeat([0, 1, 2], [50, 37, 3]).astype(np.uint32))
    placed = map_of([[rng.choice(list(PUBLISHED)) for _ in range(24)] for _ in range(3)])
    costs = published_costs()
    tiers = tuple(replace(cost, row_us=1.5) for cost in costs.tiers)
    costs = replace(costs, tiers=tiers, contention=contention)
    figures = simulate(placed, trace, costs, rows=rows, by_rows=False)
    wanted = _by_hand(placed, trace, rows, 1.5, contention)
    assert figures.token.mean_us == pytest.approx(np.mean(wanted))
    assert figures.token.p99_us == pytest.approx(sorted(wanted)[-1], rel=0.2)
    assert sum(use.share for use in figures.tiers) == pytest.approx(1.0)
    assert sum(use.held for use in figures.tiers) == 72
    assert figures.floor_us <= figures.token.mean_us


def test_tiers_of_one_processor_take_turns() -> None:
    placed = map_of([["hbm", "rtx", "grace", "spark"]])
    trace = trace_of(np.array([[[0, 1, 2, 3]]]), 4)
    costs = published_costs()
    assert simulate(placed, trace, costs).token.mean_us == 93 + 10.4
    station = tuple(
        replace(cost, processor="station") if cost.tier != "spark" else cost for cost in costs.tiers
    )
    turns = simulate(placed, trace, replace(costs, tiers=station))
    assert turns.token.mean_us == pytest.approx(3 + 93 + 10.4 + 48)
    assert [use.slowest for use in turns.tiers] == [1, 1, 1, 0]


def test_tokens_a_second_and_the_line_of_rows(seed: int) -> None:
    trace = skewed_trace(seed, layers=4, experts=64, top_k=4, tokens=400)
    placed = map_of([["hbm"] * 32 + ["spark"] * 32] * 4)
    figures = simulate(placed, trace, published_costs())
    assert figures.tokens_per_s(400) == pytest.approx(1e6 / (figures.token.mean_us + 1600))
    start, each = figures.row_line
    times = [cost.mean_us for cost in figures.by_rows]
    assert times == sorted(times)
    assert start + each == pytest.approx(times[0], rel=0.25)
    assert times[1] < 2 * times[0]  # rows of one stream share calls and experts


def test_a_copy_is_used_where_it_saves_time_and_nowhere_else(seed: int) -> None:
    trace = skewed_trace(seed, layers=2, experts=32, top_k=6, tokens=300)
    rng = random.Random(seed)
    placed = map_of([[rng.choice(list(PUBLISHED)) for _ in range(32)] for _ in range(2)])
    plain = simulate(placed, trace, published_costs(), by_rows=False)
    copies, used = [], dict(placed.counts)
    for position in range(64):
        home = placed.tiers[placed.tier_of[position]]
        other = "hbm" if home != "hbm" else "spark"
        copies.append((position, placed.tiers.index(other), used[other]))
        used[other] += 1
    copied = simulate(replace(placed, copies=tuple(copies)), trace, published_costs())
    assert copied.token.mean_us < plain.token.mean_us
    assert copied.token.p99_us <= plain.token.p99_us


def test_what_does_not_belong_together_is_refused(seed: int) -> None:
    trace = skewed_trace(seed, layers=2, experts=32, top_k=2, tokens=10)
    placed = map_of([["hbm"] * 32] * 2)
    with pytest.raises(ConfigError, match="the map places 1 layers of 32 experts"):
        simulate(map_of([["hbm"] * 32]), trace, published_costs())
    with pytest.raises(ConfigError, match="the pod has no tier 'hbm'"):
        simulate(placed, trace, published_costs(tiers=("rtx", "spark")))
    with pytest.raises(ConfigError, match="no sequence of the trace has 11 tokens"):
        simulate(placed, trace, published_costs(), rows=11)
    one = simulate(placed, trace_of(trace.ids[:, :1], 32), published_costs())
    assert (one.tokens, len(one.by_rows)) == (1, 1)


def test_nothing_is_known_of_an_embedded_pods_costs() -> None:
    with pytest.raises(ConfigError, match="nothing is known of what tier hbm"):
        costs_of(load_pod("embedded"))


def test_receipts_of_this_pod_are_measured_and_others_are_not() -> None:
    from k3d.store.records import Receipt

    pod = load_pod("embedded")
    tiers = {tier: {"call_us": 5.0, "expert_us": 2.0} for tier in pod.slots}
    good = {"pod": "embedded", "sparks": 4, "tiers": tiers}
    bad = [
        {**good, "sparks": 8},
        {**good, "pod": "embedded-8"},
        {"pod": "embedded"},
        {**good, "tiers": {"hbm": {"call_us": float("nan"), "expert_us": 1.0}}},
        {**good, "tiers": {"attic": {"call_us": 1.0, "expert_us": 1.0}}},
    ]
    receipts = [Receipt("a", 1, "tier-costs", "measured", "", good, {})]
    receipts += [Receipt("b", 2, "tier-costs", "measured", "", figures, {}) for figures in bad]
    receipts += [Receipt("c", 3, "bench-pod", "measured", "", good, {})]
    costs = costs_of(pod, receipts)
    assert {cost.source for cost in costs.tiers} == {"receipt a"}
    assert costs.processors == (0, 0, 0, 1)
    assert costs.with_cut("whole").tiers[3].expert_us == 8.0
    described = costs_of(load_pod("station-8-sparks"), receipts)
    assert {cost.source for cost in described.tiers} == {"pod description"}
    assert described.processors == (0, 1, 2, 3)
