"""Swap plans: copies into free slots, waves where there are few, parking where there are none."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from k3d.errors import ConfigError
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.swap_plan import SwapPlan, plan_swap, traffic

TIERS: tuple[str, ...] = ("hbm", "grace", "spark")


def placed(homes: bytes, experts: int, epoch: int = 1) -> PlacementMap:
    return number_slots(epoch, TIERS, range(1, 1 + len(homes) // experts), experts, homes)


def carry_out(plan: SwapPlan, slots: Mapping[str, int]) -> PlacementMap:
    """Do what a plan says with real slots; fails when a copy has no room beside what is there."""
    held = {(t, s): (layer, e) for t in TIERS for s, layer, e in plan.now.experts_in(t)}
    for wave in plan.waves:
        for move in wave.moves:
            assert 0 <= move.target_slot < slots[move.target]
            assert (move.target, move.target_slot) not in held, move
            held[move.target, move.target_slot] = (move.layer, move.expert)
        for move in wave.moves:
            assert held.pop((move.source, move.source_slot)) == (move.layer, move.expert)
        found = {(t, s): (layer, e) for t in TIERS for s, layer, e in wave.placed.experts_in(t)}
        assert found == held
    return plan.final


def test_what_stays_keeps_its_slot_and_what_moves_takes_the_lowest_free_one() -> None:
    now, wanted = placed(bytes([0, 0, 1, 2]), 4), placed(bytes([1, 0, 1, 0]), 4)
    plan = plan_swap(now, wanted, dict.fromkeys(TIERS, 4), 2)
    assert [move[1:] for move in plan.waves[0].moves] == [
        (0, "hbm", 0, "grace", 1),
        (3, "spark", 0, "hbm", 2),
    ]
    assert plan.final.slot(1, 1) == now.slot(1, 1) == 1
    assert (plan.final.epoch, plan.parked, len(plan.waves)) == (2, 0, 1)
    assert plan.final.tier_of == wanted.tier_of
    back = plan_swap(plan.final, now, dict.fromkeys(TIERS, 4), 3)
    assert back.final.tier_of == now.tier_of


def test_one_free_slot_makes_many_waves_and_a_full_exchange_is_parked() -> None:
    now, wanted = placed(bytes([0, 0, 1, 1]), 4), placed(bytes([1, 1, 0, 0]), 4)
    slots = {"hbm": 2, "grace": 2, "spark": 1}
    plan = plan_swap(now, wanted, slots, 5)
    assert plan.parked >= 1
    assert [wave.placed.epoch for wave in plan.waves] == list(range(5, 5 + len(plan.waves)))
    assert carry_out(plan, slots).tier_of == wanted.tier_of
    with pytest.raises(ConfigError, match="short of slots: 4 experts move into grace, hbm"):
        plan_swap(now, wanted, {"hbm": 2, "grace": 2, "spark": 0}, 5)


@pytest.mark.parametrize("spare", [1, 3, 40])
def test_any_two_maps_that_fit_have_a_way_between_them(seed: int, spare: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        experts = draw.randrange(4, 24)
        homes = bytes(draw.choices((0, 1, 2), (1, 2, 3), k=2 * experts))
        shuffled = list(homes)
        draw.shuffle(shuffled)
        slots = {tier: homes.count(number) for number, tier in enumerate(TIERS)}
        slots[draw.choice(TIERS)] += spare
        now, wanted = placed(homes, experts), placed(bytes(shuffled), experts)
        plan = plan_swap(now, wanted, slots, 2)
        assert carry_out(plan, slots).tier_of == wanted.tier_of


def test_nothing_moves_between_maps_that_differ_in_slots_alone() -> None:
    now = placed(bytes([0, 1, 0, 1]), 4)
    other = PlacementMap(1, TIERS, (1,), 4, now.tier_of, (3, 2, 1, 0))
    plan = plan_swap(now, other, dict.fromkeys(TIERS, 4), 2)
    assert (plan.moves, plan.final) == (0, now)


def test_the_token_names_the_state_and_the_goal() -> None:
    now, slots = placed(bytes([0, 0, 1, 1]), 4), dict.fromkeys(TIERS, 8)
    wanted, other = placed(bytes([0, 1, 1, 1]), 4), placed(bytes([2, 2, 2, 2]), 4)
    token = plan_swap(now, wanted, slots, 2).token
    assert token == plan_swap(now, wanted, slots, 9).token
    assert token != plan_swap(now, other, slots, 2).token
    assert token != plan_swap(now.with_epoch(2), wanted, slots, 3).token


def test_bytes_by_tier_and_node() -> None:
    now, wanted = placed(bytes([0, 0, 1, 2]), 4), placed(bytes([2, 2, 1, 0]), 4)
    plan = plan_swap(now, wanted, dict.fromkeys(TIERS, 4), 2)
    cost = traffic(plan, "station", {"spark-1": 50, "spark-2": 50}, 100)
    assert cost.copies == {"hbm": 1, "grace": 0, "spark": 2}
    assert cost.tier_bytes == {"hbm": 100, "grace": 0, "spark": 200}
    assert cost.node_bytes == {"station": 100, "spark-1": 100, "spark-2": 100}
    assert cost.total_bytes == 300


def test_a_map_of_another_model_or_without_room_is_refused() -> None:
    now = placed(bytes([0, 0, 1, 1]), 4)
    with pytest.raises(ConfigError, match="1 layers of 2 experts, the pod serves 1 of 4"):
        plan_swap(now, placed(bytes([0, 1]), 2), dict.fromkeys(TIERS, 4), 2)
    with pytest.raises(ConfigError, match="tier spark has 1 slots"):
        plan_swap(now, placed(bytes([2] * 4), 4), {"hbm": 2, "grace": 2, "spark": 1}, 2)
