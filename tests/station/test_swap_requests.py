"""Requests with an id: however many copies ask, there is one swap; and waiting for another one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from k3ctl.cli.main import run
from k3d.store.state import StateReader
from k3d.store.swaps import SwapReader
from tests.station.conftest import RunningPod
from tests.station.swapping import PROMPT, ask, placement, swap, wait_for

Start = Callable[..., RunningPod]
COPIES = 50
MAIN = "from k3ctl.cli.main import main; main()"


@pytest.fixture
def pod(start_pod: Start) -> RunningPod:
    return start_pod(1, "--transport", "inproc")


def swaps(pod: RunningPod) -> list[str]:
    with StateReader.open(pod.home) as reader:
        return [each.plan["name"] for each in SwapReader(reader).swaps()]


def test_fifty_copies_at_once_give_one_swap(pod: RunningPod) -> None:
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=16)
    command = [
        sys.executable, "-c", MAIN, "placement", "swap", "all-grace", "--request-id", "night-7",
        "--lock-wait", "100", "-q", "--json", "--home", str(pod.home),
    ]  # fmt: skip
    copies = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(COPIES)]
    answers = [json.loads(copy.communicate(timeout=110)[0]) for copy in copies]
    assert {copy.returncode for copy in copies} == {0}
    assert swaps(pod) == ["all-grace"]
    assert sorted(answer["request"]["repeated"] for answer in answers) == [False] + [True] * 49
    assert len({answer["intent"] for answer in answers}) == 1
    assert {answer["swap"]["state"] for answer in answers} == {"done"}
    assert pod.ids(prompt_ids=PROMPT, max_tokens=16) == wanted


def test_the_station_knows_a_request_again_whoever_asks(pod: RunningPod) -> None:
    first = ask(pod, "swap", placement="all-grace", request_id="r1", rate_bytes_s=100_000)
    again = ask(pod, "swap", placement="all-grace", request_id="r1")
    assert again["intent"] == first["intent"]
    other = ask(pod, "swap", placement="all-hbm", request_id="r1")
    assert (other["code"], other["name"]) == (5, "REFUSED")
    assert "request r1 was of a swap to all-grace, not to all-hbm" in other["message"]
    assert wait_for(pod, first["intent"])["state"] == "done"
    token = first["token"]  # of the state before it, which is no reason to refuse what is done
    done = ask(pod, "swap", placement="all-grace", request_id="r1", if_token=token)
    assert (done["copies"], done["intent"]) == (0, first["intent"])
    back = ask(pod, "rollback", request_id="r2")
    assert wait_for(pod, back["intent"])["state"] == "done"
    assert ask(pod, "rollback", request_id="r2")["intent"] == back["intent"]
    assert swaps(pod) == ["all-grace", pod.status()["policy"]]


def test_lock_wait_waits_for_the_swap_under_way_and_codes_are_detailed(
    pod: RunningPod, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--home", str(pod.home)]
    slow = ask(pod, "swap", placement="all-grace", rate_bytes_s=100_000)
    assert run(["placement", "swap", "all-hbm", "--json", *home]) == 11
    assert run(["placement", "swap", "all-hbm", "--lock-wait", "60", "-q", *home]) == 0
    capsys.readouterr()
    assert wait_for(pod, placement(pod)["last"]["intent"])["name"] == "all-hbm"
    assert swaps(pod) == ["all-grace", "all-hbm"]
    assert slow["intent"]
    dry = ["placement", "swap", "all-rtx", "--dry-run", "--detailed-exitcode", *home]
    assert run(dry) == 20
    swap(pod, "all-rtx")
    assert run(dry) == 0
    assert run(["placement", "swap", "all-rtx", "--detailed-exitcode", *home]) == 2
    capsys.readouterr()
    assert run(["placement", "status", "-H", "-o", "tier,experts", *home]) == 0
    shown = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert shown == {"hbm": "0", "rtx": "128", "grace": "0", "spark": "0"}
    assert run(["placement", "swap", "all-hbm", "--dry-run", "-H", "-o", "tier,in", *home]) == 0
    assert "hbm\t128" in capsys.readouterr().out.splitlines()
