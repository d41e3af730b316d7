"""Planners: what each puts where, slots, bounds, the optimiser, copies, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3d.errors import ConfigError
from k3d.placement.costs import Costs
from k3d.placement.passes import Rates
from k3d.placement.placement_map import PlacementMap
from k3d.placement.planner_assign import assign
from k3d.placement.planner_optimised import Objective
from k3d.placement.planners import Plan, PlanRequest, make_plan
from k3d.placement.pod import load_pod
from k3d.placement.policy import LayerBounds, PlacementPolicy, load_policy
from k3d.placement.simulator import simulate
from k3d.placement.trace import Trace
from tests.placement.skewed import PUBLISHED, published_costs, skewed_trace, trace_of

TRACED = ("hot-cold", "layer-balanced", "cost-ranked", "frequency-sliced", "optimised")


def _plan(name: str, trace: Trace, slots: dict[str, int], costs: Costs | None = None) -> Plan:
    return make_plan(PlanRequest(load_policy(name), trace, slots, costs or published_costs()))


def _small(seed: int, tokens: int = 400) -> Trace:
    return skewed_trace(seed, layers=4, experts=40, top_k=4, tokens=tokens)


SLOTS = {"hbm": 24, "rtx": 16, "grace": 60, "spark": 72}


@pytest.mark.parametrize("name", [*TRACED, "contiguous", "optimised-replicated"])
def test_every_expert_has_one_home_within_the_slots(name: str, seed: int) -> None:
    trace = _small(seed)
    placed = _plan(name, trace, SLOTS).placed
    assert sum(placed.counts.values()) == 160
    placed.require_slots(SLOTS)
    assert placed.tiers == tuple(SLOTS)
    assert PlacementMap.from_json(placed.to_json()) == placed
    assert _plan(name, trace, SLOTS).placed == placed


def test_104_58_511_223_a_layer(seed: int) -> None:
    """The hottest of each layer in hbm, the next in rtx, then the sparks, the rest in grace."""
    trace = skewed_trace(seed, layers=5)
    slots = {"hbm": 5 * 104, "rtx": 5 * 58, "grace": 24_852, "spark": 5 * 511}
    placed = _plan("frequency-sliced", trace, slots).placed
    for index, layer in enumerate(trace.layers):
        homes = [placed.tier(layer, expert) for expert in range(896)]
        counts = Counter(homes)
        assert (counts["hbm"], counts["rtx"], counts["spark"], counts["grace"]) == (
            104, 58, 511, 223,
        )  # fmt: skip
        ranked = np.argsort(-trace.counts[index], kind="stable")
        assert {homes[expert] for expert in ranked[:104]} == {"hbm"}
        assert {homes[expert] for expert in ranked[-223:]} == {"grace"}


def test_the_hottest_of_all_layers_come_first(seed: int) -> None:
    trace = _small(seed)
    counts = trace.counts.ravel()
    for name, costs, order in (
        ("hot-cold", published_costs(), ("hbm", "grace", "rtx", "spark")),
        ("cost-ranked", published_costs(), ("hbm", "spark", "rtx", "grace")),
        ("cost-ranked", published_costs().with_cut("whole"), ("hbm", "rtx", "grace", "spark")),
    ):
        plan = _plan(name, trace, SLOTS, costs)
        assert plan.order == order
        heat = {tier: [] for tier in SLOTS}
        for position, tier in enumerate(plan.placed.tier_of):
            heat[plan.placed.tiers[tier]].append(counts[position])
        for hotter, colder in pairwise(order):
            if heat[colder]:
                assert min(heat[hotter]) >= max(heat[colder])


@pytest.mark.parametrize("contention", [0.0, 0.6])
def test_the_optimiser_is_no_worse_than_any_rule(contention: float, seed: int) -> None:
    trace = _small(seed)
    costs = replace(published_costs(), contention=contention)
    means = {
        name: simulate(_plan(name, trace, SLOTS, costs).placed, trace, costs).token.mean_us
        for name in (*TRACED, "contiguous", "optimised-replicated")
    }
    assert means["optimised"] <= min(means[name] for name in means if "optimised" not in name)
    assert means["optimised-replicated"] <= means["optimised"]


def test_the_optimiser_plans_for_the_rows_asked_for(seed: int) -> None:
    trace = _small(seed)
    policy = load_policy("optimised")
    placed = {
        rows: make_plan(
            PlanRequest(msgspec.structs.replace(policy, rows=rows), trace, SLOTS, published_costs())
        ).placed
        for rows in (1, 4)
    }
    times = {
        rows: simulate(placed[rows], trace, published_costs(), rows=4, by_rows=False).token.mean_us
        for rows in (1, 4)
    }
    assert times[4] <= times[1]


@pytest.mark.parametrize("contention", [0.0, 0.6])
def test_a_gain_is_what_moving_the_expert_changes(contention: float, seed: int) -> None:
    """Of an expert that all passes pick, so that no prior speaks into it."""
    ids = np.argsort(np.random.default_rng(seed).random((1, 5000, 23)))[..., :3] + 1
    ids[..., 0] = 0
    costs = replace(published_costs(), contention=contention)
    objective = Objective(trace_of(ids, 24), Rates.of(costs), 1, 5000)
    home = np.random.default_rng(seed + 1).integers(0, 4, (1, 24)).astype(np.uint8)
    gains, before = objective.gains(home)[0, 0], objective.mean_us(home)
    for tier in range(4):
        moved = home.copy()
        moved[0, 0] = tier
        assert gains[tier] == pytest.approx(objective.mean_us(moved) - before, rel=0.02, abs=0.5)


def test_tiers_of_one_processor_are_filled_as_such(seed: int) -> None:
    """Where the Station's tiers take turns and cost alike, none is better than another."""
    trace = _small(seed)
    costs = published_costs()
    tiers = tuple(
        replace(c, processor="station", call_us=50.0, expert_us=10.0) for c in costs.tiers
    )
    alike = replace(costs, tiers=tiers)
    one = {"hbm": 160, "rtx": 160, "grace": 160, "spark": 160}
    placed = _plan("optimised", trace, one, alike).placed
    best = simulate(placed, trace, alike).token.mean_us
    assert best == pytest.approx(4 * (50 + 4 * 10))  # one call a layer: all in one tier


def test_copies_are_in_slots_that_are_left_over(seed: int) -> None:
    trace = _small(seed)
    full = {"hbm": 24, "rtx": 16, "grace": 60, "spark": 60}
    assert _plan("optimised-replicated", trace, full).placed.copies == ()
    placed = _plan("optimised-replicated", trace, SLOTS).placed
    assert 0 < len(placed.copies) <= sum(SLOTS.values()) - 160
    placed.require_slots(SLOTS)


def test_bounds_of_a_layer_are_kept_by_exchanges(seed: int) -> None:
    trace = _small(seed)
    free = _plan("hot-cold", trace, SLOTS).placed
    bounds = {"hbm": LayerBounds(least=4, most=8), "spark": LayerBounds(least=8, most=17)}
    policy = msgspec.structs.replace(load_policy("hot-cold"), layer=bounds)
    plan = make_plan(PlanRequest(policy, trace, SLOTS, published_costs()))
    assert plan.placed.counts == free.counts
    for layer in trace.layers:
        counts = Counter(plan.placed.tier(layer, expert) for expert in range(40))
        assert 4 <= counts["hbm"] <= 8
        assert 8 <= counts["spark"] <= 17


def _bounded(**bounds: LayerBounds) -> PlacementPolicy:
    return msgspec.structs.replace(load_policy("hot-cold"), layer=bounds)


@pytest.mark.parametrize(
    ("policy", "slots", "sentence"),
    [
        (_bounded(hbm=LayerBounds(most=5)), SLOTS, "24 experts in hbm cannot be 0 to 5"),
        (_bounded(hbm=LayerBounds(least=7)), SLOTS, "24 experts in hbm cannot be 7 to 40"),
        (load_policy("optimised"), {**SLOTS, "grace": 40}, "short of 8 slots"),
        (load_policy("cost-ranked"), {**SLOTS, "grace": 40}, "short of 8 slots"),
        (load_policy("hot-cold"), {"hbm": 1, "rtx": 1, "grace": 1, "spark": 1}, "short of 156"),
        (load_policy("optimised"), {"hbm": 200}, "costs are of tiers hbm, rtx, grace, spark"),
        (load_policy("all-rtx"), SLOTS, "tier rtx is short"),
    ],
)
def test_what_cannot_be_is_named(
    policy: PlacementPolicy, slots: dict[str, int], sentence: str, seed: int
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_plan(PlanRequest(policy, _small(seed), slots, published_costs()))


def test_a_trace_of_one_token_and_tiers_without_room(seed: int) -> None:
    trace = _small(seed, tokens=1)
    slots = {"hbm": 160, "rtx": 1, "grace": 1, "spark": 1}
    for name in (*TRACED, "optimised-replicated"):
        assert sum(_plan(name, trace, slots).placed.counts.values()) == 160
    lone = trace_of(np.zeros((1, 3, 1)), 1)
    for name in TRACED:
        assert _plan(name, lone, dict.fromkeys(PUBLISHED, 1)).placed.counts["hbm"] in (0, 1)


def test_the_real_pod_is_planned_whole(seed: int) -> None:
    pod = load_pod("station-8-sparks")
    trace = skewed_trace(seed, layers=92, tokens=20)
    for name in ("hot-cold", "frequency-sliced"):
        placed = _plan(name, trace, pod.slots).placed
        assert sum(placed.counts.values()) == 82_432
        assert placed.counts["hbm"] == 9_558


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_assignments_fit_and_none_is_better_by_one_exchange(data: st.DataObject) -> None:
    tiers = data.draw(st.integers(1, 4))
    experts = data.draw(st.integers(1, 12))
    capacity = np.array([data.draw(st.integers(0, experts)) for _ in range(tiers)])
    capacity[0] += max(0, experts - capacity.sum())
    values = st.floats(-5, 5, allow_nan=False, width=16)
    costs = np.array([[data.draw(values) for _ in range(tiers)] for _ in range(experts)])
    home = np.zeros(experts, np.uint8)
    chosen = assign(costs, capacity, home)
    assert (np.bincount(chosen, minlength=tiers) <= capacity).all()
    for a in range(experts):
        for b in range(a):
            now = costs[a, chosen[a]] + costs[b, chosen[b]]
            assert costs[a, chosen[b]] + costs[b, chosen[a]] >= now - 1e-6


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"policy": "hot-cold", "replicate": True}, "replicate: .*makes no use of it"),
        ({"policy": "cost-ranked", "order": ("spark", "hbm")}, "order: .*makes no use of it"),
        ({"policy": "hot-cold", "order": ("hbm", "rtx")}, "short of 120 slots"),
        ({"policy": "hot-cold", "share": {"hbm": 0.5, "rtx": 0.5}}, "tier hbm is short"),
    ],
)
def test_keys_that_do_not_fit_are_refused(keys: dict, sentence: str, seed: int) -> None:
    policy = PlacementPolicy(schema="k3-placement/1", **keys)
    with pytest.raises(ConfigError, match=sentence):
        make_plan(PlanRequest(policy, _small(seed), SLOTS, published_costs()))


def test_a_share_of_a_tier_that_the_pod_lacks_is_refused(seed: int) -> None:
    slots = {"hbm": 160, "spark": 160}
    costs = published_costs(tiers=("hbm", "spark"))
    policy = PlacementPolicy(
        schema="k3-placement/1", policy="hot-cold", share={"hbm": 0.5, "rtx": 0.5}
    )
    with pytest.raises(ConfigError, match="tier rtx is short"):
        make_plan(PlanRequest(policy, _small(seed), slots, costs))
    for name in ("hot-cold", "cost-ranked", "frequency-sliced", "optimised"):
        placed = _plan(name, _small(seed), slots, costs).placed
        assert set(placed.counts) == {"hbm", "spark"}
