"""Swaps where slots are few: waves, parking, and an abort between two of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from k3d.placement.placement_map import PlacementMap
from k3d.store.state import StateReader
from tests.station.conftest import RunningPod, write_pod
from tests.station.swapping import PROMPT, ask, last, placement, swap, wait_for

SLOTS = {"hbm": 26, "rtx": 13, "grace": 39, "spark": 56}


@pytest.fixture
def pod(tmp_path: Path, home: Path, tiny_model: Path) -> Iterator[RunningPod]:
    """Two sparks inside, and six slots more than there are experts."""
    description = write_pod(tmp_path / "pod.toml", tiny_model, 2)
    text = description.read_text()
    for tier, slots in SLOTS.items():
        text = text.replace(f'name = "{tier}"\nslots = 128', f'name = "{tier}"\nslots = {slots}')
    description.write_text(text)
    running = RunningPod(home, description)
    running.start("station", "--transport", "inproc", "--placement", "fastest-first")
    try:
        running.wait_state("healthy")
        yield running
    finally:
        running.close()


@pytest.fixture
def shuffled(pod: RunningPod, tmp_path: Path, seed: int) -> Path:
    """A map's file with as many experts in every tier as now, and others."""
    with StateReader.open(pod.home) as reader:
        stored = reader.placement_map()
    assert stored is not None
    now = PlacementMap.from_json(stored.map_json)
    places = list(zip(now.tier_of, now.slot_of, strict=True))
    random.Random(seed).shuffle(places)
    tiers, slots = zip(*places, strict=True)
    path = tmp_path / "shuffled.json"
    path.write_bytes(replace(now, tier_of=bytes(tiers), slot_of=tuple(slots)).to_json())
    return path


def turned(pod: RunningPod, epoch: int) -> Callable[[], bool]:
    return lambda: placement(pod)["epoch"] > epoch


def test_waves_go_through_epochs_and_end_in_the_map(pod: RunningPod, shuffled: Path) -> None:
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=24)
    epoch = placement(pod)["epoch"]
    plan = ask(pod, "swap", placement=str(shuffled), dry_run=True)
    assert len(plan["waves"]) > 2
    assert sum(wave["copies"] for wave in plan["waves"]) == plan["copies"]
    assert all(tier["experts_now"] == tier["experts_then"] for tier in plan["tiers"])
    done = swap(pod, str(shuffled))
    assert done["state"] == "done"
    assert placement(pod)["epoch"] == epoch + len(plan["waves"])
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted
    back = ask(pod, "rollback")
    assert wait_for(pod, back["intent"])["state"] == "done"
    assert not ask(pod, "swap", placement="fastest-first", dry_run=True)["copies"]
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted


def test_an_abort_between_waves_swaps_back_what_is_in_force(
    pod: RunningPod, shuffled: Path
) -> None:
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=24)
    before = placement(pod)
    begun = ask(pod, "swap", placement=str(shuffled), rate_bytes_s=100_000)
    pod.wait("the first wave", turned(pod, before["epoch"]))
    aborted = ask(pod, "abort")
    assert aborted == {**aborted, "intent": begun["intent"], "state": "cancelled"}

    def back() -> bool:
        return placement(pod)["swap"] is None and last(pod).get("returns", False)

    pod.wait("the way back", back)
    assert last(pod)["state"] == "done"
    assert not ask(pod, "swap", placement="fastest-first", dry_run=True)["copies"]
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted


def test_a_station_killed_between_waves_goes_on_from_the_last_one(
    pod: RunningPod, shuffled: Path
) -> None:
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=24)
    epoch = placement(pod)["epoch"]
    begun = ask(pod, "swap", placement=str(shuffled), rate_bytes_s=200_000)
    pod.wait("the first wave", turned(pod, epoch))
    pod.kill("station")
    pod.processes["station"].wait()
    pod.start("station", "--transport", "inproc", "--placement", "fastest-first")
    assert wait_for(pod, begun["intent"])["state"] == "done"
    assert not ask(pod, "swap", placement=str(shuffled), dry_run=True)["copies"]
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted
