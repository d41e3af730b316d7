"""Placement policies and maps."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3d.errors import ConfigError, NotFound
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.pod import TIERS, load_pod
from k3d.placement.policy import TRACED, LayerBounds, PlacementPolicy, load_policy, plan
from k3d.placement.policy_files import policy_directories

EMBEDDED = {"hbm": 768, "rtx": 768, "grace": 768, "spark": 768}
LAYERS = range(1, 13)
SHIPPED = sorted(path.stem for path in policy_directories("placement")[0].glob("*.toml"))
BLIND = [name for name in SHIPPED if load_policy(name).policy not in TRACED]


def _policy(**keys: object) -> PlacementPolicy:
    return msgspec.convert({"schema": "k3-placement/1", **keys}, PlacementPolicy)


@pytest.mark.parametrize("name", BLIND)
@pytest.mark.parametrize("pod", ["embedded", "embedded-1", "embedded-2", "embedded-8"])
def test_every_shipped_policy_fits_every_embedded_pod(name: str, pod: str) -> None:
    slots = load_pod(pod).slots
    placed = plan(LAYERS, 64, slots, load_policy(name))
    assert sum(placed.counts.values()) == 768
    placed.require_slots(slots)


def test_the_default_policy_uses_every_tier_in_every_layer() -> None:
    placed = plan(LAYERS, 64, EMBEDDED, load_policy(load_pod("embedded").placement))
    assert placed.counts == {"hbm": 154, "rtx": 77, "grace": 230, "spark": 307}
    for layer in LAYERS:
        counts = Counter(placed.tier(layer, expert) for expert in range(64))
        assert set(counts) == set(TIERS)


@pytest.mark.parametrize("tier", TIERS)
def test_every_expert_in_one_tier(tier: str) -> None:
    placed = plan(LAYERS, 64, EMBEDDED, load_policy(f"all-{tier}"))
    assert placed.counts[tier] == 768
    assert [slot for slot, _, _ in placed.experts_in(tier)] == list(range(768))


def test_contiguous_fills_tiers_layer_by_layer() -> None:
    placed = plan(LAYERS, 64, EMBEDDED, load_policy("contiguous"))
    order = [placed.tier(layer, expert) for layer in LAYERS for expert in range(64)]
    assert order == sorted(order, key=TIERS.index)


def test_the_real_pod_is_planned_in_about_a_second() -> None:
    pod = load_pod("station-8-sparks")
    start = time.perf_counter()
    placed = plan(range(1, 93), 896, pod.slots, load_policy(pod.placement))
    digest = placed.digest
    taken_s = time.perf_counter() - start
    assert placed.counts == {"hbm": 9_558, "rtx": 5_177, "grace": 24_852, "spark": 42_845}
    for layer in (1, 46, 92):
        counts = Counter(placed.tier(layer, expert) for expert in range(896))
        assert abs(counts["hbm"] - 9_558 / 92) < 2
    assert PlacementMap.from_json(placed.to_json()).digest == digest
    assert taken_s < 2.0


def test_a_short_pod_names_what_is_short() -> None:
    with pytest.raises(ConfigError, match=r"short of 468 slots: 768 experts and 300 slots"):
        plan(LAYERS, 64, {"hbm": 100, "spark": 200}, load_policy("fastest-first"))
    strict = msgspec.structs.replace(load_policy("layer-balanced"), overflow="refuse")
    with pytest.raises(ConfigError, match=r"tier hbm is short: .* 154 experts .* 100 slots"):
        plan(LAYERS, 64, {**EMBEDDED, "hbm": 100}, strict)
    with pytest.raises(ConfigError, match=r"tier rtx is short"):
        plan(LAYERS, 64, {"hbm": 768}, load_policy("all-rtx"))


def test_what_a_share_has_no_slots_for_goes_to_the_next_tier() -> None:
    short = {**EMBEDDED, "hbm": 100, "grace": 200}
    placed = plan(LAYERS, 64, short, load_policy("layer-balanced"))
    assert placed.counts == {"hbm": 100, "rtx": 77 + 54 + 30, "grace": 200, "spark": 307}
    pod = load_pod("station-8-sparks")
    for name in ("contiguous", "layer-balanced"):
        plan(range(1, 93), 896, pod.slots, load_policy(name)).require_slots(pod.slots)
    with pytest.raises(ConfigError, match=r"short of 8 slots"):
        plan(LAYERS, 64, dict.fromkeys(TIERS, 190), load_policy("layer-balanced"))


def test_a_policy_that_ranks_by_a_trace_says_so() -> None:
    for name in sorted(set(SHIPPED) - set(BLIND)):
        with pytest.raises(ConfigError, match=f"policy {name} ranks experts by a trace"):
            plan(LAYERS, 64, EMBEDDED, load_policy(name))


def test_a_map_from_a_file_is_a_policy(tmp_path: Path) -> None:
    placed = plan(LAYERS, 64, EMBEDDED, load_policy("layer-balanced"))
    path = tmp_path / "map.json"
    path.write_bytes(replace(placed, tiers=placed.tiers).to_json())
    again = plan(LAYERS, 64, EMBEDDED, load_policy(str(path)), epoch=7)
    assert (again.epoch, again.digest) == (7, placed.digest)
    backwards = dict(reversed(EMBEDDED.items()))
    turned = plan(LAYERS, 64, backwards, load_policy(str(path)))
    assert turned.tiers == tuple(backwards)
    assert all(turned.tier(3, e) == placed.tier(3, e) for e in range(64))
    for layers, experts, slots, sentence in (
        (range(2, 14), 64, EMBEDDED, "others of the same number"),
        (LAYERS, 65, EMBEDDED, "the model has 12 of 65"),
        (LAYERS, 64, {**EMBEDDED, "hbm": 100}, "tier hbm has 100 slots"),
        (LAYERS, 64, {"hbm": 768, "spark": 768}, "no tier 'rtx'"),
    ):
        with pytest.raises(ConfigError, match=rf"map.json: .*{sentence}"):
            plan(layers, experts, slots, load_policy(str(path)))
    with pytest.raises(NotFound, match="no placement map"):
        plan(LAYERS, 64, EMBEDDED, load_policy(str(tmp_path / "none.json")))


def test_a_map_can_carry_second_homes() -> None:
    placed = plan(LAYERS, 64, EMBEDDED, load_policy("all-hbm"))
    assert b"copies" not in placed.to_json()
    copied = replace(placed, copies=((5, 3, 0), (9, 1, 4)))
    again = PlacementMap.from_json(copied.to_json())
    assert again == copied
    assert again.digest != placed.digest
    copied.require_slots({**EMBEDDED, "spark": 1})
    with pytest.raises(ConfigError, match="tier rtx has 3 slots and slot 4"):
        copied.require_slots({**EMBEDDED, "rtx": 3})
    for copies, sentence in (
        (((5, 0, 1),), "no second home"),
        (((5, 9, 1),), "no second home"),
        (((5, 3, 0), (6, 3, 0)), "slot 0 of spark is given to layer 1 expert 5 and to layer 1"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            replace(placed, copies=copies)


WRONG = [
    ("map: given", {"policy": "map"}),
    ("map: given", {"policy": "single", "tier": "hbm", "map": "m.json"}),
    ("tier", {"policy": "single"}),
    ("tier", {"policy": "contiguous", "tier": "hbm"}),
    ("no tier 'attic'", {"policy": "single", "tier": "attic"}),
    ("not a list of different tiers", {"policy": "contiguous", "order": ["hbm", "hbm"]}),
    ("not a list of different tiers", {"policy": "contiguous", "order": ["attic"]}),
    ("share.attic", {"policy": "contiguous", "share": {"attic": 1.0}}),
    ("share: the policy single", {"policy": "single", "tier": "hbm", "share": {"hbm": 1.0}}),
    ("share: the policy map", {"policy": "map", "map": "m.json", "share": {"hbm": 1.0}}),
    ("overflow: the policy contiguous", {"policy": "contiguous", "overflow": "next"}),
    ("replicate: the policy contiguous", {"policy": "contiguous", "replicate": True}),
    ("layer: the policy contiguous", {"policy": "contiguous", "layer": {"hbm": LayerBounds()}}),
    ("order: the policy map", {"policy": "map", "map": "m.json", "order": ("hbm",)}),
    ("sum to 0.5", {"policy": "contiguous", "share": {"hbm": 0.5}}),
    ("between 0 and 1", {"policy": "contiguous", "share": {"hbm": 1.5, "rtx": -0.5}}),
]


@pytest.mark.parametrize(("sentence", "keys"), WRONG)
def test_a_policy_that_cannot_be_is_refused(sentence: str, keys: dict) -> None:
    with pytest.raises(ConfigError, match=sentence):
        plan(LAYERS, 64, EMBEDDED, _policy(**keys))


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('schema = "k3-placement/1"\npolicy = "by-luck"\n')
    with pytest.raises(ConfigError, match=r"bad.toml: policy: .*by-luck"):
        load_policy(str(path))
    with pytest.raises(NotFound, match=r"known: .*layer-balanced"):
        load_policy("nope")


@given(st.data())
def test_any_sound_request_places_every_expert_once(data: st.DataObject) -> None:
    tiers = data.draw(st.lists(st.sampled_from(TIERS), min_size=1, unique=True))
    layers = data.draw(st.integers(1, 9))
    experts = data.draw(st.integers(1, 40))
    total = layers * experts
    weights = {tier: data.draw(st.integers(0, 5)) for tier in tiers}
    kind = data.draw(st.sampled_from(["contiguous", "layer-balanced"]))
    shared = any(weights.values()) and data.draw(st.booleans())
    keys: dict = {"policy": kind, "order": tiers}
    if shared:
        keys["share"] = {tier: w / sum(weights.values()) for tier, w in weights.items()}
    slots: dict[str, int] = dict.fromkeys(sorted(tiers, key=TIERS.index), total)
    placed = plan(range(1, layers + 1), experts, slots, _policy(**keys))
    assert sum(placed.counts.values()) == total
    places = [place for tier in tiers for place in placed.experts_in(tier)]
    assert len({(layer, expert) for _, layer, expert in places}) == total
    placed.require_slots(slots)
    if kind == "layer-balanced":
        for layer in range(1, layers + 1):
            counts = Counter(placed.tier(layer, expert) for expert in range(experts))
            for tier in tiers:
                assert abs(counts[tier] - placed.counts[tier] / layers) <= 2


@pytest.fixture
def placed() -> PlacementMap:
    return plan(LAYERS, 64, EMBEDDED, load_policy("layer-balanced"))


def test_the_epoch_is_not_part_of_the_digest(placed: PlacementMap) -> None:
    later = placed.with_epoch(7)
    assert later.epoch == 7
    assert later.digest == placed.digest
    assert placed.digest != plan(LAYERS, 64, EMBEDDED, load_policy("contiguous")).digest


def test_looking_up_what_is_not_there(placed: PlacementMap) -> None:
    for layer, expert in ((0, 0), (13, 0), (1, 64), (1, -1)):
        with pytest.raises(NotFound):
            placed.tier(layer, expert)
    assert placed.experts_in("attic") == []


def test_a_slot_given_twice_is_named(placed: PlacementMap) -> None:
    first, second = [p for p, tier in enumerate(placed.tier_of) if tier == 3][:2]
    slots = list(placed.slot_of)
    slots[second] = slots[first]
    with pytest.raises(ConfigError, match=r"slot 0 of spark is given to layer 1 expert \d+ and"):
        replace(placed, slot_of=tuple(slots))


def test_slots_beyond_the_tier_are_named(placed: PlacementMap) -> None:
    with pytest.raises(ConfigError, match="tier grace has 229 slots and slot 229 is used"):
        placed.require_slots({**EMBEDDED, "grace": 229})
    with pytest.raises(ConfigError, match="the pod has no tier 'rtx'"):
        placed.require_slots({"hbm": 768, "grace": 768, "spark": 768})


def test_damaged_json_never_becomes_a_map(seed: int) -> None:
    draw = random.Random(seed)
    text = number_slots(1, ["hbm", "rtx"], [1, 2], 4, bytes([0, 1] * 4)).to_json()
    good = PlacementMap.from_json(text)
    refused = 0
    for _ in range(2_000):
        damaged = bytearray(text)
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            found = PlacementMap.from_json(bytes(damaged))
        except ConfigError:
            refused += 1
        else:
            assert len(found.tier_of) == len(good.tier_of)
    assert refused > 500
