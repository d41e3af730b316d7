"""Swaps in which a process is killed: the pod ends in one of the two maps, and tokens stay."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

import pytest

from k3ctl.cli.main import run
from k3d.store.home import read_run_file
from tests.station.conftest import RunningPod
from tests.station.swapping import (
    PROMPT,
    Lane,
    ask,
    last,
    p99_ms,
    placement,
    swap,
    take_gaps,
    wait_calmly,
    wait_for,
)

Start = Callable[..., RunningPod]
CAMPAIGN = int(os.environ.get("K3_SWAP_CAMPAIGN", "0"))
"""Swaps of the long form, which takes minutes."""
SLOW = 20_000
"""Bytes a second at which a swap of the tiny pod takes seconds."""


def copying(pod: RunningPod) -> Callable[[], bool]:
    def begun() -> bool:
        under_way = placement(pod)["swap"]
        return under_way is not None and under_way["copied_bytes"] > 0

    return begun


def restart(pod: RunningPod, name: str) -> None:
    pod.kill(name, signal.SIGKILL)
    pod.processes[name].wait()
    pod.start(name)


def test_a_spark_killed_in_the_middle_pauses_the_swap_until_it_is_back(start_pod: Start) -> None:
    pod = start_pod(2)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=40)
    lane = Lane(pod, wanted)
    begun = ask(pod, "swap", placement="all-spark", rate_bytes_s=4 * SLOW)
    pod.wait("some copies", copying(pod))
    pod.kill("spark-2", signal.SIGKILL)
    pod.processes["spark-2"].wait()
    pod.wait("the pause", lambda: "spark-2" in (placement(pod)["swap"]["paused"] or ""))
    pod.start("spark-2")
    done = wait_for(pod, begun["intent"])
    assert done["state"] == "done"
    lane.end()
    assert pod.ids(prompt_ids=PROMPT, max_tokens=40) == wanted
    restart(pod, "spark-1")  # it is filled for the map that is in force now
    pod.wait_state("healthy")
    assert pod.ids(prompt_ids=PROMPT, max_tokens=40) == wanted
    node = pod.status()["nodes"][1]
    assert node["slots_used"] == pod.status()["nodes"][2]["slots_used"] == 128


def test_a_dry_run_names_the_spark_that_the_swap_would_wait_for(
    start_pod: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = start_pod(2)
    swap(pod, "all-spark")
    dry = ["placement", "swap", "layer-balanced", "--dry-run", "--home", str(pod.home)]
    assert ask(pod, "swap", placement="layer-balanced", dry_run=True)["waits_for"] == []
    assert run(dry) == 0
    assert "waits for" not in capsys.readouterr().out
    pod.kill("spark-2", signal.SIGKILL)
    pod.processes["spark-2"].wait()
    lost = ["spark-2"]
    pod.wait(
        "the loss",
        lambda: ask(pod, "swap", placement="layer-balanced", dry_run=True)["waits_for"] == lost,
    )
    assert run(dry) == 0
    assert "spark-2 is not ready: the swap waits for it\n" in capsys.readouterr().out
    unneeded = ask(pod, "swap", placement="all-grace", dry_run=True)
    assert (len(unneeded["waves"]), unneeded["waits_for"]) == (1, []), "nothing is left on sparks"


def test_a_station_killed_in_the_middle_goes_on_when_it_is_back(start_pod: Start) -> None:
    pod = start_pod(2)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=40)
    begun = ask(pod, "swap", placement="all-spark", rate_bytes_s=SLOW)
    pod.wait("some copies", copying(pod))
    before = placement(pod)["digest"]
    restart(pod, "station")
    pod.wait_state("healthy")
    found = placement(pod)
    assert found["digest"] == before, "nothing had turned"
    assert found["swap"]["intent"] == begun["intent"]
    assert pod.ids(prompt_ids=PROMPT, max_tokens=40) == wanted
    assert ask(pod, "abort")["state"] == "cancelled"
    pod.wait("the end", lambda: placement(pod)["swap"] is None)
    done = swap(pod, "all-spark")
    assert done["state"] == "done"
    restart(pod, "station")
    pod.wait_state("healthy")
    after = placement(pod)
    assert (after["swapped"], after["placement"]) == (True, "all-spark")
    assert (after["epoch"], after["digest"]) == (done["steps"][-1]["epoch"], done["digest"])
    assert "still holds" in pod.log("station")
    assert pod.ids(prompt_ids=PROMPT, max_tokens=40) == wanted


def test_a_station_that_dies_at_any_step_ends_in_one_of_the_two_maps(start_pod: Start) -> None:
    pod = start_pod(2)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=24)
    goals = ("all-spark", "layer-balanced")
    steps = ("stage", "commit", "turn", "recorded", "retire")
    for number, step in enumerate(steps if CAMPAIGN else steps[1::2]):
        pod.kill("station", signal.SIGTERM)
        pod.processes["station"].wait()
        pod.start("station", program=("tests.station.dying_daemon", step))
        pod.wait_state("healthy")
        before = placement(pod)
        goal = goals[number % 2]
        begun = ask(pod, "swap", placement=goal)
        assert pod.processes["station"].wait(30) == -signal.SIGKILL
        pod.start("station")
        done = wait_for(pod, begun["intent"])
        assert done["state"] == "done", step
        pod.wait_state("healthy")
        after = placement(pod)
        assert after["digest"] == done["digest"] != before["digest"]
        assert not ask(pod, "swap", placement=goal, dry_run=True)["copies"]
        assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == wanted, step
        experts = {tier["name"]: tier["experts"] for tier in after["tiers"]}
        pod.wait("sparks that hold the map's slices and no others", holds(pod, experts["spark"]))


def test_a_spark_that_dies_of_any_frame_of_a_swap_is_waited_for(start_pod: Start) -> None:
    pod = start_pod(2)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=24)
    goals = ("all-spark", "layer-balanced")
    lane = Lane(pod, wanted)
    for number, kind in enumerate(("FILL", "COMMIT", "LOAD", "RETIRE")):
        pod.kill("spark-1", signal.SIGTERM)
        pod.processes["spark-1"].wait()
        pod.start("spark-1", program=("tests.station.dying_daemon", kind))
        pod.wait_state("healthy")
        begun = ask(pod, "swap", placement=goals[number % 2])
        assert pod.processes["spark-1"].wait(30) == -signal.SIGKILL
        pod.start("spark-1")
        assert wait_for(pod, begun["intent"])["state"] == "done", kind
        pod.wait_state("healthy")
        counts = {tier["name"]: tier["experts"] for tier in placement(pod)["tiers"]}
        pod.wait("sparks that hold the map's slices", holds(pod, counts["spark"]))
    lane.end()


def holds(pod: RunningPod, slices: int) -> Callable[[], bool]:
    return lambda: [node["slots_used"] for node in pod.status()["nodes"][1:]] == [slices] * 2


def test_another_policy_on_the_command_line_is_what_the_operator_gets(start_pod: Start) -> None:
    pod = start_pod(1, "--transport", "inproc")
    swap(pod, "all-grace")
    epoch = placement(pod)["epoch"]
    pod.kill("station", signal.SIGTERM)
    pod.processes["station"].wait()
    pod.start("station", "--transport", "inproc", "--placement", "all-hbm")
    pod.wait_state("healthy")
    found = placement(pod)
    assert not found["swapped"]
    assert found["epoch"] == epoch + 1
    refused = ask(pod, "rollback")
    assert refused["code"] == 10
    assert "was started with the map in force, all-hbm" in refused["message"]


def calm(pod: RunningPod, lanes: list[Lane]) -> None:
    """Wait until every lane has ended an answer that it began since."""
    before = [lane.answers for lane in lanes]

    def answered() -> bool:
        wrong = [lane.wrong for lane in lanes if lane.wrong]
        assert not wrong, wrong
        return all(lane.answers >= count + 2 for lane, count in zip(lanes, before, strict=True))

    pod.wait("answers without a swap", answered)


@pytest.mark.skipif(not CAMPAIGN, reason="minutes long; K3_SWAP_CAMPAIGN=N")
@pytest.mark.parametrize("kills", [False, True])
def test_campaign(start_pod: Start, seed: int, kills: bool) -> None:
    """N swaps back and forth under eight lanes, with a random process killed in each, or not."""
    draw = random.Random(seed)
    pod = start_pod(2)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=24)
    lanes = [Lane(pod, wanted, kills=kills) for _ in range(8)]
    steady_s: list[float] = []
    swapping_s: list[float] = []
    for number in range(CAMPAIGN):
        calm(pod, lanes)
        steady_s += take_gaps(lanes)
        goal = ("all-spark", "layer-balanced", "contiguous")[number % 3]
        begun = ask(pod, "swap", placement=goal, rate_bytes_s=draw.choice((SLOW * 20, SLOW * 80)))
        stale = ask(pod, "swap", placement="all-hbm", if_token="0" * 16)
        assert stale["code"] == 12
        if kills:
            name = draw.choice(("station", "spark-1", "spark-2"))
            pod.wait("the moment", lambda: draw.random() < 0.05)
            restart(pod, name)
            pod.wait("the Station", lambda: read_run_file(pod.home, "station") is not None)
            pod.wait_state("healthy")
        done = (wait_for if kills else wait_calmly)(pod, begun["intent"])
        assert done["state"] == "done"
        assert last(pod)["digest"] == placement(pod)["digest"]
        swapping_s += take_gaps(lanes)
    calm(pod, lanes)
    broken = sum(lane.broken for lane in lanes)
    print(f"{sum(lane.answers for lane in lanes)} answers, {broken} broken off by kills")
    print(
        f"p99 pause of a token: {p99_ms(steady_s):.1f} ms of {len(steady_s)} without swaps, "
        f"{p99_ms(swapping_s):.1f} ms of {len(swapping_s)} with"
    )
    for lane in lanes:
        lane.end()
