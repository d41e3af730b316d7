"""Swaps of the map in force: planned, carried out under traffic, aborted, taken back."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from k3ctl.cli.main import run
from k3d.store.state import StateReader
from k3d.store.swaps import SwapReader
from tests.station.conftest import RunningPod
from tests.station.swapping import PROMPT, Lane, ask, last, placement, swap, wait_for

Start = Callable[..., RunningPod]


@pytest.fixture
def pod(start_pod: Start) -> RunningPod:
    return start_pod(2, "--transport", "inproc")


def homes(pod: RunningPod) -> dict[str, int]:
    return {tier["name"]: tier["experts"] for tier in placement(pod)["tiers"]}


def test_swaps_back_and_forth_leave_the_tokens_of_busy_lanes_as_they_are(pod: RunningPod) -> None:
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=40)
    before = homes(pod)
    lanes = [Lane(pod, wanted) for _ in range(4)]
    epochs = [placement(pod)["epoch"]]
    for name in ("all-spark", "contiguous", "all-grace", "layer-balanced"):
        done = swap(pod, name)
        assert done["state"] == "done", done
        epochs.append(placement(pod)["epoch"])
        assert done["copies"] > 0
        assert {step["kind"] for step in done["steps"]} >= {"stage", "commit", "turn", "retire"}
        assert all(step["took_us"] is not None for step in done["steps"])
        copied = sum(step["size_bytes"] for step in done["steps"])
        assert copied == done["size_bytes"]
    for lane in lanes:
        lane.end()
    assert sum(lane.answers for lane in lanes) > 0
    assert homes(pod) == before
    assert epochs == sorted(set(epochs))
    assert pod.ids(prompt_ids=PROMPT, max_tokens=40) == wanted
    effects = last(pod)["effects"]
    assert {effect["provenance"] for effect in effects} == {"measured"}
    assert {"before", "during"} <= {effect["moment"] for effect in effects}


def test_a_dry_run_shows_what_would_be_done_and_a_stale_token_is_refused(pod: RunningPod) -> None:
    shown = ask(pod, "swap", placement="all-grace", dry_run=True)
    assert shown["intent"] is None
    assert placement(pod)["swap"] is None
    assert shown["copies"] == sum(tier["in"] for tier in shown["tiers"])
    assert shown["size_bytes"] == sum(node["size_bytes"] for node in shown["nodes"])
    assert shown["seconds"]["provenance"] == "modelled"
    done = swap(pod, "all-grace", if_token=shown["token"])
    assert (done["state"], done["size_bytes"]) == ("done", shown["size_bytes"])
    stale = ask(pod, "swap", placement="all-spark", if_token=shown["token"])
    assert (stale["type"], stale["code"], stale["name"]) == ("error", 12, "STALE")
    again = ask(pod, "swap", placement="all-grace")
    assert (again["copies"], again["intent"]) == (0, None)


def test_rollback_is_a_swap_to_the_map_before(pod: RunningPod) -> None:
    assert ask(pod, "rollback")["code"] == 10
    before, policy = homes(pod), pod.status()["policy"]
    assert pod.status()["placement"] == placement(pod)["placement"] == policy
    swap(pod, "all-hbm")
    assert pod.status()["swapped"]
    for document in (pod.status(), placement(pod)):
        assert (document["placement"], document["policy"]) == ("all-hbm", policy)
    back = ask(pod, "rollback")
    assert back["name"] == policy
    assert wait_for(pod, back["intent"])["state"] == "done"
    assert homes(pod) == before
    assert pod.status()["placement"] == placement(pod)["placement"] == policy
    assert not placement(pod)["swapped"]
    assert not pod.status()["swapped"]


def test_an_abort_drops_what_was_staged(pod: RunningPod) -> None:
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=16)
    before = placement(pod)
    lane = Lane(pod, wanted)
    begun = ask(pod, "swap", placement="all-spark", rate_bytes_s=20_000)
    other = ask(pod, "swap", placement="all-hbm")
    assert (other["code"], other["name"]) == (11, "LOCKED")
    pod.wait("some copies", lambda: placement(pod)["swap"]["copied_bytes"] > 0)
    assert pod.status()["swap"]["phase"] == "staging"
    assert ask(pod, "abort")["state"] == "cancelled"
    pod.wait("the end", lambda: placement(pod)["swap"] is None)
    assert last(pod)["intent"] == begun["intent"]
    assert ask(pod, "abort")["state"] == "cancelled", "again is no error"
    after = placement(pod)
    assert (after["epoch"], after["digest"]) == (before["epoch"], before["digest"])
    sparks = [node["slots_used"] for node in pod.status()["nodes"][1:]]
    done = swap(pod, "all-spark")
    assert done["state"] == "done", "slots of dropped copies are free again"
    lane.end()
    assert len(set(sparks)) == 1


def test_bad_requests_are_one_sentence(pod: RunningPod) -> None:
    assert ask(pod, "swap")["code"] == 2
    assert ask(pod, "swap", placement="no-such")["code"] == 10
    assert ask(pod, "swap", placement="optimised")["code"] == 2
    assert ask(pod, "swap", placement="all-hbm", rate_bytes_s=0)["code"] == 2
    assert ask(pod, "swap", plase="x")["code"] == 2
    assert ask(pod, "abort")["code"] == 10


def test_the_command_line_plans_swaps_and_goes_back(
    pod: RunningPod, capsys: pytest.CaptureFixture[str]
) -> None:
    def k3ctl(*words: str, code: int = 0) -> Any:
        assert run(["placement", *words, "--json", "--home", str(pod.home)]) == code
        captured = capsys.readouterr()
        return json.loads(captured.out if code == 0 else captured.err.splitlines()[-1])

    plan = k3ctl("swap", "all-rtx", "--dry-run")
    assert (plan["schema"], plan["swap"], plan["intent"]) == ("k3ctl.placement-swap/1", None, None)
    done = k3ctl("swap", "all-rtx", "--if-token", plan["token"], "-q")
    assert done["swap"]["state"] == "done"
    assert k3ctl("swap", "all-rtx")["swap"] is None, "it is in force already"
    stale = k3ctl("swap", "all-hbm", "--if-token", plan["token"], code=12)
    assert (stale["name"], stale["retryable"]) == ("STALE", False)
    status = k3ctl("status")
    assert (status["schema"], status["swapped"]) == ("k3ctl.placement-status/1", True)
    assert k3ctl("rollback", "-q")["swap"]["state"] == "done"
    slow = k3ctl("swap", "all-spark", "--detach", "--rate", "0.01")
    assert k3ctl("abort") == {
        "schema": "k3ctl.placement-abort/1", "intent": slow["intent"], "state": "cancelled",
    }  # fmt: skip
    wait_for(pod, slow["intent"], "cancelled")
    assert run(["placement", "swap", "all-grace", "--home", str(pod.home)]) == 0
    shown = capsys.readouterr()
    assert "copies" in shown.out
    assert "--if-token" not in shown.out
    assert run(["placement", "swap", "all-hbm", "--dry-run", "--home", str(pod.home)]) == 0
    shown = capsys.readouterr()
    assert re.search(r"has changed since, add\n  --if-token [0-9a-f]{16}\n", shown.out)
    assert run(["placement", "status", "--home", str(pod.home)]) == 0
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())


def test_what_is_in_state_db(pod: RunningPod) -> None:
    done = swap(pod, "all-grace")
    with StateReader.open(pod.home) as reader:
        swaps = SwapReader(reader)
        (intent,) = swaps.swaps()
        assert (intent.id, intent.state) == (done["intent"], "done")
        kinds = [(step.kind, step.node) for step in swaps.steps(intent.id)]
        assert kinds.index(("turn", "station")) > kinds.index(("commit", "spark-2"))
        newest = reader.placement_map()
        assert newest is not None
        assert newest.digest == done["digest"]
        words = [event.message for event in reader.events() if event.kind == "swap"]
        assert words == ["a swap to all-grace begins", "the swap to all-grace is done"]


def test_a_damaged_record_fails_the_swap_by_name_and_the_map_stays(pod: RunningPod) -> None:
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=16)
    swap(pod, "all-hbm")
    before = placement(pod)
    (bank,) = (pod.home / "banks").glob("*.bank")
    with bank.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte ^ 4]))
    failed = swap(pod, "all-grace")
    assert failed["state"] == "failed"
    assert "layer 8 expert 15" in failed["reason"]
    after = placement(pod)
    assert (after["epoch"], after["digest"]) == (before["epoch"], before["digest"])
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted
    assert "Traceback" not in pod.log("station")
