"""Drift: chance is told from change, few tokens give no advice, replanning is simulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from k3d.errors import ConfigError
from k3d.placement.drift import Drift, find_drift
from k3d.placement.drift_advice import advise
from k3d.placement.drift_gain import gain_of_replanning, traffic_of
from k3d.placement.drift_limits import DriftLimits
from k3d.placement.placement_map import PlacementMap
from k3d.placement.planners import PlanRequest, make_plan
from k3d.placement.policy import load_policy
from k3d.placement.population import (
    Population,
    made_trace,
    planned_from,
    population_of,
    spread_of,
)
from k3d.placement.trace import Trace
from tests.placement.skewed import published_costs, skewed_trace, trace_of

SLOTS = {"hbm": 96, "rtx": 96, "grace": 96, "spark": 192}
EXPERTS, LAYERS = 64, 6
REPLAN = "k3ctl placement swap replanned.json"


def traffic(seed: int, tokens: int = 4000, skew: float = 1.2) -> Trace:
    return skewed_trace(
        seed, layers=LAYERS, experts=EXPERTS, top_k=4, tokens=tokens, skew=skew, apart=0.2
    )


def planned(trace: Trace, policy: str = "hot-cold") -> PlacementMap:
    return make_plan(PlanRequest(load_policy(policy), trace, SLOTS, published_costs())).placed


def part(trace: Trace, first: int, last: int) -> Trace:
    return Trace(trace.header, trace.ids[:, first:last], None, trace.sequence[first:last])


def seen(placed: PlacementMap, trace: Trace, tokens: int | None = None) -> Drift:
    population = population_of(part(trace, 0, tokens or trace.tokens))
    return find_drift(placed, planned_from(placed), population)


def test_a_map_keeps_what_it_was_planned_from_through_json_and_without_changing_its_digest() -> (
    None
):
    trace = traffic(1)
    placed = planned(trace)
    again = PlacementMap.from_json(placed.to_json())
    assert again.origin == placed.origin is not None
    assert again.digest == replace(placed, origin=None).digest
    population = planned_from(again)
    assert population is not None
    assert np.array_equal(population.counts, trace.counts)
    assert (population.tokens, population.top_k) == (4000, 4)
    assert planned_from(replace(placed, origin=None)) is None
    short = placed.to_json().replace(b'"counts":[', b'"counts":[7,')
    with pytest.raises(ConfigError, match="its origin counts 385 experts of 384"):
        PlacementMap.from_json(short)


def test_the_same_traffic_is_no_drift_and_other_traffic_is(seed: int) -> None:
    whole = traffic(seed, tokens=8000)
    placed = planned(part(whole, 0, 4000))
    same = seen(placed, part(whole, 4000, 8000))
    assert same.verdict == "none"
    assert same.divergence is not None
    assert same.hot_sets is not None
    assert not same.divergence.beyond_noise
    assert same.hot_sets.shared == pytest.approx(same.hot_sets.by_noise, abs=0.12)
    for tier in same.tiers:
        assert tier.error is not None
        assert tier.expected == pytest.approx(tier.seen, abs=2.5 * tier.error)

    other = seen(placed, traffic(seed + 1))
    assert other.verdict == "drift"
    assert other.divergence is not None
    assert other.hot_sets is not None
    assert other.divergence.excess_bits > 0.05
    assert other.hot_sets.shared <= 0.35 < other.hot_sets.by_noise
    hbm = other.tiers[0]
    assert hbm.expected is not None
    assert hbm.seen is not None
    assert hbm.error is not None
    assert hbm.expected > hbm.seen + 5 * hbm.error, "hot experts are elsewhere now"


def test_few_tokens_say_so_and_how_many_would_do(seed: int) -> None:
    placed = planned(traffic(seed))
    for tokens in (1, 20, 63):
        few = seen(placed, traffic(seed + 1), tokens)
        assert few.verdict == "too-few"
        assert few.needed_tokens is not None
        advice = advise(few, None, REPLAN)
        assert advice.command is None
        assert f"{tokens:,} were seen, about {few.needed_tokens:,} are" in advice.sentence
    enough = seen(placed, traffic(seed + 1), few.needed_tokens)
    assert enough.verdict == "drift"
    assert seen(placed, traffic(seed + 1)).needed_tokens is None
    nothing = Population(np.zeros((LAYERS, EXPERTS), np.int64), 0, 4, 1.0, "measured", "nothing")
    found = find_drift(placed, planned_from(placed), nothing)
    assert found.verdict == "too-few"
    assert {(tier.seen, tier.error) for tier in found.tiers} == {(None, None)}
    assert advise(found, None, REPLAN).sentence.startswith("no token was seen yet")


def test_sequences_that_choose_alike_widen_the_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lone = traffic(seed, tokens=3200)
    assert spread_of(lone) == pytest.approx(1.0, abs=0.2)
    # 32 sequences, each with a ranking of its own, repeat their first ten tokens.
    blocks = [skewed_trace(int(rng.integers(2**31)), layers=LAYERS, experts=EXPERTS, top_k=4,
                           tokens=10).ids for _ in range(32)]  # fmt: skip
    ids = np.concatenate([np.tile(block, (1, 10, 1)) for block in blocks], axis=1)
    alike = trace_of(ids, EXPERTS, np.repeat(np.arange(32), 100))
    assert spread_of(alike) > 10
    placed = planned(alike)
    half = population_of(part(alike, 0, 1600))
    narrow = find_drift(placed, replace(population_of(alike), spread=1.0), replace(half, spread=1))
    wide = find_drift(placed, population_of(alike), half)
    assert narrow.divergence is not None
    assert wide.divergence is not None
    assert wide.divergence.noise_bits > 5 * narrow.divergence.noise_bits
    assert narrow.divergence.beyond_noise
    assert wide.verdict != "drift"


def test_a_map_without_a_trace_has_nothing_to_drift_from() -> None:
    trace = traffic(3)
    blind = replace(planned(trace, "contiguous"), origin=None)
    found = seen(blind, trace)
    assert (found.verdict, found.divergence, found.hot_sets) == ("no-origin", None, None)
    assert [tier.expected for tier in found.tiers] == [None] * 4
    gain = gain_of_replanning(blind, trace, load_policy("optimised"), published_costs(), SLOTS)
    assert gain.share > 0.05
    assert advise(found, gain, REPLAN).command == REPLAN
    assert advise(found, None, REPLAN).command is None
    assert advise(found, None, REPLAN, "measure").command == "measure"


def test_the_gain_is_that_of_both_maps_on_the_traffic_seen(seed: int) -> None:
    old, new = traffic(seed), traffic(seed + 1)
    placed = planned(old, "optimised")
    policy, costs = load_policy("optimised"), published_costs()
    stale = gain_of_replanning(placed, new, policy, costs, SLOTS)
    assert stale.share > 0.05
    assert stale.moved > 0
    assert not stale.made_up
    assert stale.best.token.mean_us < stale.now.token.mean_us
    fresh = gain_of_replanning(placed, old, policy, costs, SLOTS)
    assert fresh.share == pytest.approx(0.0, abs=1e-9)
    assert fresh.moved == 0
    drifted = seen(placed, new)
    assert advise(drifted, stale, REPLAN).command == REPLAN
    assert "drifted" in advise(drifted, stale, REPLAN).sentence
    assert advise(drifted, fresh, REPLAN).command is None
    assert advise(seen(placed, old), fresh, REPLAN).command is None
    assert advise(drifted, None, REPLAN).command is None
    assert advise(drifted, None, REPLAN, "measure").command == "measure"
    assert advise(seen(placed, old), None, REPLAN, "measure").command is None


def test_traffic_made_up_from_counts_has_their_shares_and_gives_the_map_its_origin() -> None:
    old, new = traffic(5), population_of(traffic(6))
    made = traffic_of(new, old.layers)
    assert made.header.provenance == "modelled"
    assert (np.diff(made.ids.astype(int), axis=2) > 0).all()
    share, wanted = made.counts / made.counts.sum(), new.counts / new.counts.sum()
    assert np.corrcoef(share.ravel(), wanted.ravel())[0, 1] > 0.98
    policy = load_policy("hot-cold")
    gain = gain_of_replanning(planned(old), made, policy, published_costs(), SLOTS, new)
    assert gain.made_up
    origin = planned_from(gain.placed)
    assert origin is not None
    assert np.array_equal(origin.counts, new.counts)
    few = np.zeros((1, EXPERTS), np.int64)
    few[0, :2] = 9
    with pytest.raises(ConfigError, match="2 experts were chosen and a token takes 4"):
        made_trace(replace(new, counts=few), (1,), 10)


def test_traffic_of_another_model_is_refused() -> None:
    placed = planned(traffic(1))
    other = population_of(skewed_trace(1, layers=2, experts=16, top_k=2, tokens=100))
    with pytest.raises(ConfigError, match="6 layers of 64 experts, the traffic is of 2 of 16"):
        find_drift(placed, planned_from(placed), other)
    with pytest.raises(ConfigError, match="a hot set of 999 experts of 384"):
        find_drift(placed, planned_from(placed), population_of(traffic(1)), hot=999)


def test_limits_decide_what_matters(seed: int) -> None:
    placed = planned(traffic(seed))
    population = population_of(traffic(seed + 1))
    lax = DriftLimits(divergence_bits=0.9, overlap=0.0)
    assert find_drift(placed, planned_from(placed), population, limits=lax).verdict == "none"
