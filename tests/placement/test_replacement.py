"""Re-placement without a spark: spare slots, fewer sparks, or a sentence of what is short."""

from __future__ import annotations

import random

import pytest

from k3d.errors import ConfigError, ExitCode
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.pod import PodDescription, load_pod
from k3d.placement.replacement import SlotsShort, shortage, without_sparks
from k3d.placement.slicing import Slicing, over_fewer, plan_cut, slicing_of
from k3d.placement.swap_plan import plan_swap

TIERS = ("hbm", "rtx", "grace", "spark")
SLOTS = {"hbm": 6, "rtx": 4, "grace": 8, "spark": 12}
HOMES = bytes([0] * 4 + [1] * 2 + [2] * 4 + [3] * 6)


@pytest.fixture
def now() -> PlacementMap:
    return number_slots(3, TIERS, (1, 2), 8, HOMES)


@pytest.fixture(scope="module")
def pod() -> PodDescription:
    return load_pod("embedded")


def test_the_most_chosen_go_to_the_fastest_free_slots(now: PlacementMap) -> None:
    chosen = [0] * 10 + [5, 9, 1, 2, 8, 3]
    wanted = without_sparks(now, SLOTS, ["spark-2"], chosen)
    assert wanted.counts == {"hbm": 6, "rtx": 4, "grace": 6, "spark": 0}
    homes = [wanted.tiers[tier] for tier in wanted.tier_of[10:]]
    assert homes == ["rtx", "hbm", "grace", "grace", "hbm", "rtx"]
    assert wanted.tier_of[:10] == now.tier_of[:10]
    wanted.require_slots(SLOTS)
    plan = plan_swap(now, wanted, SLOTS, 4)
    assert (len(plan.waves), plan.parked, plan.moves) == (1, 0, 6)
    assert {move.source for move in plan.waves[0].moves} == {"spark"}


def test_what_is_short_is_said_by_tier(now: PlacementMap) -> None:
    few = {**SLOTS, "rtx": 2, "grace": 5}
    assert shortage(now, SLOTS, ["spark-2"]) is None
    with pytest.raises(SlotsShort) as caught:
        without_sparks(now, few, ["spark-2", "spark-3"])
    assert caught.value.message == (
        "without spark-2 and spark-3 6 experts have no place: the other tiers have 3 free slots "
        "(hbm 2, rtx 0, grace 1), 3 short"
    )
    assert (caught.value.short, caught.value.code) == (3, ExitCode.REFUSED)
    found = shortage(now, few, ["spark-2"], Slicing(("spark-1", "spark-4"), 2))
    assert found is not None
    assert found.message.endswith(
        "(hbm 2, rtx 0, grace 1) and spark-1 and spark-4 would hold 2, 1 short"
    )
    alone = number_slots(1, ("spark",), (1,), 4, bytes(4))
    lonely = shortage(alone, {"spark": 4}, ["spark-1"])
    assert lonely is not None
    assert "have 0 free slots (there are none), 4 short" in lonely.message


def test_fewer_sparks_hold_as_many_bytes_in_larger_slices(pod: PodDescription) -> None:
    assert slicing_of(pod) == Slicing(("spark-1", "spark-2", "spark-3", "spark-4"), 768)
    assert over_fewer(pod, ["spark-1", "spark-3", "spark-4"]) == Slicing(
        ("spark-1", "spark-3"), 384
    )
    assert over_fewer(pod, ["spark-4"]) == Slicing(("spark-4",), 192)
    assert over_fewer(pod, []) is None
    assert slicing_of(pod, ["spark-9"]) == slicing_of(pod), "of another description"
    assert slicing_of(pod).index("spark-3") == 2
    assert slicing_of(pod, ["spark-3"]).index("spark-1") is None


def test_what_stays_on_fewer_sparks_is_the_least_chosen_and_numbered_afresh(
    now: PlacementMap,
) -> None:
    few = {**SLOTS, "rtx": 2, "grace": 5}
    fewer = Slicing(("spark-1",), 4)
    chosen = [0] * 10 + [5, 9, 1, 2, 8, 3]
    wanted = without_sparks(now, few, ["spark-2"], chosen, fewer)
    plan = plan_cut(now, wanted, {**few, "spark": fewer.slots}, 4)
    final = plan.final
    assert (final.epoch, final.counts["spark"], final.counts["hbm"]) == (4, 4, 6)
    assert [(expert + 8) for _, _, expert in final.experts_in("spark")] == [10, 12, 13, 15]
    assert [slot for slot, _, _ in final.experts_in("spark")] == [0, 1, 2, 3]
    assert [move.target for move in plan.waves[0].moves] == ["hbm", "hbm"]
    back = plan_cut(final, now, few, 5)
    assert back.final.tier_of == now.tier_of
    assert {move.target for move in back.waves[0].moves} == {"spark"}


def test_any_way_there_and_back_keeps_every_slot_used_once(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        experts = draw.randrange(6, 30)
        homes = bytes(draw.choices(range(4), k=2 * experts))
        slots = {tier: homes.count(n) + draw.randrange(6) for n, tier in enumerate(TIERS)}
        now = number_slots(1, TIERS, (1, 2), experts, homes)
        fewer = Slicing(("spark-1",), slots["spark"] // 2)
        if shortage(now, slots, ["spark-2"], fewer) is not None:
            continue
        then = {**slots, "spark": fewer.slots}
        there = plan_cut(now, without_sparks(now, slots, ["spark-2"], (), fewer), then, 2).final
        there.require_slots(then)
        back = plan_cut(there, now, slots, 3).final
        back.require_slots(slots)
        assert back.tier_of == now.tier_of
        for number, tier in enumerate(TIERS[:3]):
            stayed = [p for p, home in enumerate(homes) if home == number]
            assert all(back.slot_of[p] == now.slot_of[p] for p in stayed), tier


def test_a_tier_without_room_beside_what_is_there_is_named(now: PlacementMap) -> None:
    wanted = number_slots(1, TIERS, (1, 2), 8, bytes([3] * 4 + [1] * 2 + [2] * 4 + [0] * 6))
    with pytest.raises(ConfigError, match="tier hbm has no free slot"):
        plan_cut(now, wanted, SLOTS, 4)
