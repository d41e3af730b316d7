"""A pod that starts from staged banks: the same tokens, and almost nothing sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3d.experts.bank_file import Bank
from k3d.main import main
from k3d.placement.policy import load_policy, plan
from k3d.store.state import StateReader
from tests.staging.conftest import flip
from tests.station.conftest import RunningPod
from tests.station.swapping import PROMPT as LANE_PROMPT
from tests.station.swapping import Lane, swap
from tests.station.test_pod import PROMPT

Start = Callable[..., RunningPod]


def bank(pod: RunningPod, verb: str, *arguments: str) -> None:
    home = ["--home", str(pod.home), "--pod", str(pod.description)]
    assert main(["bank", verb, *home, *arguments]) == 0


def ids(pod: RunningPod) -> list[int]:
    return pod.ids(prompt_ids=PROMPT, max_tokens=24)


def banks_of(pod: RunningPod) -> list[dict[str, Any]]:
    """What the status says of each spark's bank."""
    return [node["bank"] for node in pod.status()["nodes"] if node["role"] == "spark"]


def start_again(pod: RunningPod) -> None:
    """All processes anew: sparks hold nothing then."""
    pod.close()
    for name in list(pod.processes):
        pod.start(name)
    pod.wait_state("healthy")


def staged_bank(pod: RunningPod, number: int) -> Path:
    return next((pod.home / "banks" / f"spark-{number}").glob("*.bank"))


@pytest.mark.pod
def test_sparks_fill_their_slots_from_their_own_banks(start_pod: Start) -> None:
    pod = start_pod(2)
    wanted = ids(pod)
    over_the_link = banks_of(pod)
    assert [found["file"] for found in over_the_link] == [None, None]
    bank(pod, "build")
    bank(pod, "stage")
    start_again(pod)
    assert ids(pod) == wanted
    for before, now in zip(over_the_link, banks_of(pod), strict=True):
        filling = now["filling"]
        assert filling["sent"] == 0
        assert filling["filled"] == before["filling"]["sent"] == now["records"]
        names = now["records"] * 40 + 64
        assert filling["sent_bytes"] == names < before["filling"]["sent_bytes"] / 20

    # One damaged record of one spark: sent, served, put back.
    path = staged_bank(pod, 2)
    sound = path.read_bytes()
    flip(path, len(sound) - 5)
    start_again(pod)
    assert ids(pod) == wanted
    first, second = banks_of(pod)
    assert (first["filling"]["sent"], second["filling"]["sent"]) == (0, 1)
    assert path.read_bytes() == sound
    last = Bank(path)
    last.close()
    layer, expert = last.order[len(last.order) - 1]
    assert f"the record of layer {layer} expert {expert} is damaged and not served" in pod.log(
        "spark-2"
    )

    # A bank of another slice under this spark's folder, and one whose manifest is damaged.
    path.write_bytes(staged_bank(pod, 1).read_bytes())
    flip(staged_bank(pod, 1), 60)
    start_again(pod)
    assert ids(pod) == wanted
    first, second = banks_of(pod)
    assert (first["file"], second["file"]) == (None, None)
    assert "damaged" in first["ignored"][0]
    assert "is slice 1 of 2, not 2 of 2" in second["ignored"][0]
    assert "is slice 1 of 2, not 2 of 2" in pod.log("spark-2")
    assert first["filling"]["filled"] == second["filling"]["filled"] == 0


@pytest.mark.pod
def test_without_slices_at_the_station_names_come_from_its_own_bank(start_pod: Start) -> None:
    """And inside one process the same."""
    pod = start_pod(2, "--transport", "inproc")
    wanted = ids(pod)
    bank(pod, "build")
    bank(pod, "stage")
    for path in (pod.home / "banks").glob("*of2*.bank"):
        path.unlink()
    pod.close()
    pod.start("station", "--transport", "inproc")
    pod.wait_state("healthy")
    assert ids(pod) == wanted
    assert [found["filling"]["sent"] for found in banks_of(pod)] == [0, 0]


@pytest.mark.pod
def test_a_bank_of_another_map_gives_what_both_have(start_pod: Start) -> None:
    pod = start_pod(2)
    wanted = ids(pod)
    bank(pod, "build", "--placement", "contiguous")
    bank(pod, "stage", "--placement", "contiguous")
    start_again(pod)
    assert ids(pod) == wanted
    for found in banks_of(pod):
        assert "is of another map" in found["ignored"][0]
        assert found["filling"]["filled"] > 0
        assert found["filling"]["sent"] > 0


@pytest.mark.pod
def test_a_swap_takes_from_staged_banks_what_they_have(start_pod: Start) -> None:
    """Banks that were staged after the sparks had joined."""
    pod = start_pod(2)
    wanted = ids(pod)
    bank(pod, "build", "--placement", "all-spark")
    bank(pod, "stage", "--placement", "all-spark")
    path = staged_bank(pod, 2)
    sound = path.read_bytes()
    whole = Bank(path)
    whole.close()
    order = whole.order
    tiers: tuple[str, ...] = ("hbm", "rtx", "grace", "spark")
    slots: dict[str, int] = dict.fromkeys(tiers, 128)
    layers = tuple(sorted({layer for layer, _ in order}))
    held = plan(layers, len(order) // len(layers), slots, load_policy("layer-balanced"))
    moves = next(at for at, where in enumerate(order) if held.tier(*where) != "spark")
    flip(path, whole.manifest.layout.offset(moves) + 5)
    lane = Lane(pod, pod.ids(prompt_ids=LANE_PROMPT, max_tokens=40))
    done = swap(pod, "all-spark")
    assert done["state"] == "done", done
    lane.end()
    assert ids(pod) == wanted
    steps = {step["node"]: step["copies"] for step in done["steps"] if step["kind"] == "stage"}
    moved = steps["spark-1"]
    assert moved == steps["spark-2"] > 0
    with StateReader.open(pod.home) as state:
        events = [event.message for event in state.events() if "from its bank" in event.message]
    assert sorted(events) == [
        f"spark-1 took {moved} of {moved} slices from its bank",
        f"spark-2 took {moved - 1} of {moved} slices from its bank",
    ]
    assert path.read_bytes() == sound
