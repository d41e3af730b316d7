"""A spark is lost: its experts are placed in spare slots and return, and no token changes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from k3ctl.cli.main import run
from k3d.store.state import StateReader
from tests.station.conftest import RunningPod, write_pod
from tests.station.swapping import PROMPT, Lane, ask, last, placement, swap, wait_for

Begin = Callable[..., RunningPod]
AUTOMATIC = "after_s = 0.3\nreturn_after_s = 0.3"
SLOTS = 128
"""Of every tier; the tiny model has as many experts."""


@pytest.fixture
def begin(tmp_path: Path, home: Path, tiny_model: Path) -> Iterator[Begin]:
    """Start a pod of processes with a [replacement] and, if given, as many slots in the Station's
    tiers as named."""
    pods: list[RunningPod] = []

    def start(replacement: str, sparks: int = 2, **slots: int) -> RunningPod:
        description = write_pod(tmp_path / "pod.toml", tiny_model, sparks)
        text = description.read_text() + f"[replacement]\n{replacement}\n"
        for tier, count in slots.items():
            text = text.replace(
                f'name = "{tier}"\nslots = 128', f'name = "{tier}"\nslots = {count}'
            )
        description.write_text(text)
        pod = RunningPod(home, description)
        pods.append(pod)
        for index in range(sparks):
            pod.start(f"spark-{index + 1}")
        pod.start("station")
        pod.wait_state("healthy")
        return pod

    yield start
    for pod in pods:
        pod.close()


def end(pod: RunningPod, name: str) -> None:
    pod.kill(name, signal.SIGKILL)
    pod.processes[name].wait()


def homes(pod: RunningPod) -> dict[str, int]:
    return {tier["name"]: tier["experts"] for tier in placement(pod)["tiers"]}


def standing(pod: RunningPod) -> str | None:
    found = placement(pod)["replacement"]
    return None if found is None else found["state"]


def stands(pod: RunningPod, state: str | None) -> Callable[[], bool]:
    def so() -> bool:
        try:
            return standing(pod) == state
        except (OSError, AssertionError):
            return False

    return so


def events(pod: RunningPod, kind: str = "replacement") -> list[str]:
    with StateReader.open(pod.home) as reader:
        return [event.message for event in reader.events(limit=1000) if event.kind == kind]


def test_a_spark_killed_under_traffic_is_done_without_and_its_experts_return(begin: Begin) -> None:
    pod = begin(AUTOMATIC)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=40)
    before = homes(pod)
    assert before["spark"] > 0
    assert placement(pod)["replacement"] is None
    lanes = [Lane(pod, wanted) for _ in range(3)]
    end(pod, "spark-2")
    pod.wait("the re-placement", stands(pod, "placed"))
    done = last(pod)
    assert (done["state"], done["without"]) == ("done", ["spark-2"])
    assert homes(pod)["spark"] == 0
    assert sum(homes(pod).values()) == sum(before.values())
    answers = [lane.answers for lane in lanes]
    pod.wait("answers without the spark", lambda: all(
        lane.answers > count + 1 or lane.wrong for lane, count in zip(lanes, answers, strict=True)
    ))  # fmt: skip
    status = pod.status()
    assert (status["state"], status["replacement"]["state"]) == ("degraded", "placed")
    assert "spark-2 is lost" in status["replacement"]["sentence"]

    pod.start("spark-2")
    pod.wait("the return", stands(pod, None))
    assert homes(pod) == before
    pod.wait_state("healthy")
    for lane in lanes:
        lane.end()  # every answer, the interrupted ones too, was the undisturbed one
    assert pod.ids(prompt_ids=PROMPT, max_tokens=40) == wanted
    experts = f"the {before['spark']} experts on the sparks"
    assert events(pod) == [
        f"spark-2 is lost, and {experts} with it: the pod waits for it; after 0.3 s they are "
        "placed anew",
        "spark-2 is lost: what was on the sparks is being placed in the Station's tiers",
        "spark-2 is lost: what was on the sparks is served by the Station's tiers",
        "spark-2 is back: what was on the sparks may return to them",
        "spark-2 is back: what was on the sparks returns to them",
    ]
    sparks = [node["slots_used"] for node in pod.status()["nodes"][1:]]
    assert sparks == [before["spark"]] * 2


@pytest.mark.parametrize("step", ["stage", "turn", "recorded", "retire"])
def test_a_station_killed_at_any_step_of_it_ends_in_one_of_the_two_maps(
    begin: Begin, step: str
) -> None:
    pod = begin(AUTOMATIC)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=24)
    before = placement(pod)["digest"]
    pod.kill("station", signal.SIGTERM)
    pod.processes["station"].wait()
    pod.start("station", program=("tests.station.dying_daemon", step))
    pod.wait_state("healthy")
    end(pod, "spark-1")
    assert pod.processes["station"].wait(30) == -signal.SIGKILL
    pod.start("station")
    pod.wait("the re-placement", stands(pod, "placed"))
    assert homes(pod)["spark"] == 0
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted
    pod.start("spark-1")
    pod.wait("the return", stands(pod, None))
    pod.wait_state("healthy")
    assert homes(pod)["spark"] > 0
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted
    assert placement(pod)["digest"] != before or not placement(pod)["swapped"]


def test_a_pod_without_room_says_what_is_short_and_serves_again_when_the_spark_is_back(
    begin: Begin,
) -> None:
    slots = {"hbm": 27, "rtx": 14, "grace": 38, "spark": 52}
    pod = begin(AUTOMATIC, **slots)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=16)
    held = homes(pod)
    free = {tier: slots[tier] - held[tier] for tier in ("hbm", "rtx", "grace")}
    short = held["spark"] - sum(free.values()) - 26
    assert short > 0
    end(pod, "spark-1")
    pod.wait("the sentence", stands(pod, "short"))
    sentence = placement(pod)["replacement"]["sentence"]
    listed = ", ".join(f"{tier} {count}" for tier, count in free.items())
    assert sentence == (
        f"without spark-1 {held['spark']} experts have no place: the other tiers have "
        f"{sum(free.values())} free slots ({listed}) and spark-2 would hold 26, {short} short"
    )
    refused = ask(pod, "replace")
    assert (refused["code"], refused["message"]) == (5, sentence)
    assert homes(pod) == held
    pod.start("spark-1")
    pod.wait("the spark", stands(pod, None))
    pod.wait_state("healthy")
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted
    assert events(pod) == [sentence]


def test_without_a_policy_the_pod_waits_until_it_is_asked(
    begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = begin("")

    def k3ctl(*words: str, code: int = 0) -> Any:
        assert run([*words, "--json", "--home", str(pod.home)]) == code
        captured = capsys.readouterr()
        return json.loads(captured.out if code == 0 else captured.err.splitlines()[-1])

    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=16)
    assert (
        "no spark that holds experts is lost" in k3ctl("placement", "replace", code=10)["message"]
    )
    before = homes(pod)
    end(pod, "spark-1")
    pod.wait("the loss", stands(pod, "waiting"))
    assert homes(pod) == before
    plan = k3ctl("placement", "replace", "--dry-run")
    assert (plan["copies"], plan["intent"]) == (before["spark"], None)
    done = k3ctl("placement", "replace", "--if-token", plan["token"], "-q")
    assert done["schema"] == "k3ctl.placement-replace/1"
    assert done["swap"]["state"] == "done"
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted
    for verb in (["placement", "status"], ["pod", "status"]):
        run([*verb, "--home", str(pod.home)])
        shown = capsys.readouterr().out
        assert "what was on the sparks is served by the Station's tiers" in " ".join(shown.split())
    pod.start("spark-1")
    pod.wait("the spark", stands(pod, "back"))
    assert homes(pod)["spark"] == 0, "nothing returns unasked"
    assert k3ctl("placement", "rollback", "-q")["swap"]["state"] == "done"
    assert homes(pod) == before
    pod.wait("an end", stands(pod, None))
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted


def test_a_swap_that_waits_for_the_lost_spark_gives_way(begin: Begin) -> None:
    pod = begin(AUTOMATIC)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=16)
    begun = ask(pod, "swap", placement="all-spark", rate_bytes_s=20_000)
    pod.wait("some copies", lambda: placement(pod)["swap"]["copied_bytes"] > 0)
    end(pod, "spark-2")
    pod.wait("the re-placement", stands(pod, "placed"))
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted
    with StateReader.open(pod.home) as reader:
        assert reader.intent(begun["intent"]).state == "cancelled"
    pod.start("spark-2")
    pod.wait("the return", stands(pod, None))
    done = swap(pod, "all-spark")
    assert done["state"] == "done"
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted


def test_a_spark_that_is_back_in_time_ends_the_re_placement(begin: Begin) -> None:
    pod = begin("after_s = 0.0")
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=16)
    before = placement(pod)
    pod.kill("spark-1", signal.SIGSTOP)
    pod.kill("spark-2", signal.SIGKILL)
    pod.processes["spark-2"].wait()
    pod.wait("the re-placement", stands(pod, "placed"))
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted, "with both of them gone"
    pod.kill("spark-1", signal.SIGCONT)
    pod.start("spark-2")
    pod.wait("both", stands(pod, "back"))
    back = ask(pod, "rollback")
    assert wait_for(pod, back["intent"])["state"] == "done"
    assert homes(pod) == {tier["name"]: tier["experts"] for tier in before["tiers"]}
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted


FEW = {"hbm": 40, "rtx": 13, "grace": 38, "spark": 90}
"""Slots that leave the Station's tiers no room for what is on the sparks."""


def serving(pod: RunningPod) -> list[str]:
    return placement(pod)["sparks"]


def test_where_the_station_has_no_room_one_spark_holds_what_two_did(begin: Begin) -> None:
    pod = begin(AUTOMATIC, **FEW)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=40)
    before = homes(pod)
    assert serving(pod) == ["spark-1", "spark-2"]
    lanes = [Lane(pod, wanted) for _ in range(2)]
    end(pod, "spark-1")
    pod.wait("the re-placement", stands(pod, "placed"))
    assert serving(pod) == ["spark-2"]
    assert homes(pod)["spark"] == 45, "half of the slots, of slices twice as large"
    assert homes(pod)["hbm"] == before["hbm"] + before["spark"] - 45
    answers = [lane.answers for lane in lanes]
    pod.wait("answers without the spark", lambda: all(
        lane.answers > count + 1 or lane.wrong for lane, count in zip(lanes, answers, strict=True)
    ))  # fmt: skip
    node = pod.status()["nodes"][2]
    assert (node["name"], node["slice"], node["slots_used"]) == ("spark-2", "1/1", 45)
    pod.start("spark-1")
    pod.wait("the return", stands(pod, None))
    for lane in lanes:
        lane.end()
    assert (serving(pod), homes(pod)) == (["spark-1", "spark-2"], before)
    pod.wait_state("healthy")
    assert pod.ids(prompt_ids=PROMPT, max_tokens=40) == wanted
    sparks = pod.status()["nodes"][1:]
    assert [node["slots_used"] for node in sparks] == [before["spark"]] * 2
    assert [node["slice"] for node in sparks] == ["1/2", "2/2"]
    assert not placement(pod)["swapped"] or homes(pod) == before


@pytest.mark.parametrize("step", ["turn", "recorded"])
def test_a_station_killed_while_sparks_are_cut_anew_goes_on(begin: Begin, step: str) -> None:
    pod = begin(AUTOMATIC, **FEW)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=24)
    before = homes(pod)
    pod.kill("station", signal.SIGTERM)
    pod.processes["station"].wait()
    pod.start("station", program=("tests.station.dying_daemon", step))
    pod.wait_state("healthy")
    end(pod, "spark-2")
    assert pod.processes["station"].wait(30) == -signal.SIGKILL
    pod.start("station")
    pod.wait("the re-placement", stands(pod, "placed"))
    assert serving(pod) == ["spark-1"]
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted
    pod.kill("station", signal.SIGKILL)
    pod.processes["station"].wait()
    pod.start("station")
    pod.wait("the Station with the same map", stands(pod, "placed"))
    assert serving(pod) == ["spark-1"]
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted
    pod.start("spark-2")
    pod.wait("the return", stands(pod, None))
    assert (serving(pod), homes(pod)) == (["spark-1", "spark-2"], before)
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted


def test_of_four_sparks_two_go_on_and_then_two_others(begin: Begin) -> None:
    pod = begin("after_s = 0.3", sparks=4, hbm=50, rtx=13, grace=38, spark=80)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=16)
    before = homes(pod)
    end(pod, "spark-3")
    pod.wait("the re-placement", stands(pod, "placed"))
    assert serving(pod) == ["spark-1", "spark-2"]
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted
    end(pod, "spark-1")
    pod.wait("two others", lambda: serving(pod) == ["spark-2", "spark-4"])
    pod.wait("the re-placement", stands(pod, "placed"))
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted
    assert swap(pod, "fastest-first")["state"] == "done", "swaps go on over what is left"
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted
    for name in ("spark-1", "spark-3"):
        pod.start(name)
    pod.wait("all four", lambda: all(n["link"] == "ready" for n in pod.status()["nodes"][1:]))
    assert wait_for(pod, ask(pod, "rollback")["intent"])["state"] == "done"
    assert serving(pod) == ["spark-2", "spark-4"], "the map before, over the same sparks"
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted
    assert sum(homes(pod).values()) == sum(before.values())
