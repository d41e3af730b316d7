"""Parallel copies of every verb that changes something, with one request id: one has the effect,
the rest wait for it, say so, and end well. Cron does that."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3ctl.client.processes import find_daemons
from k3d.errors import ExitCode
from tests.ctl.command_tree import Words, mutating
from tests.ctl.conftest import K3ctl
from tests.ctl.counting_station import CountingStation, counting_k3d, measuring_k3d
from tests.ctl.parallel_copies import FEW, MANY, copies, one_effect
from tests.ctl.test_bank_work import BANK, BUILD, NODE, STAGE

BANKS: dict[str, dict[str, Any]] = {
    "build": BUILD,
    "stage": {**STAGE, "nodes": [NODE]},
    "verify": {"schema": "s", "banks": [BANK], "damages": [], "time_s": 1.0},
    "scrub": {
        "schema": "s", "dry_run": False, "due_bytes": 5, "total_bytes": 70, "bytes": 6,
        "rounds": 1, "time_s": 1.0, "damages": [],
    },
    "gc": {"schema": "s", "dry_run": False, "token": "0" * 16, "files": []},
}  # fmt: skip
"""What k3d says of each kind of work on banks."""
ASKED: dict[Words, list[str]] = {
    ("placement", "swap"): ["contiguous"],
    ("placement", "rollback"): [],
    ("placement", "replace"): [],
    ("placement", "abort"): [],
    ("trace", "record"): ["x.k3trace"],
    ("lanes", "cancel"): ["some-lane"],
}
"""What the Station does, and is asked for once."""


@pytest.fixture
def counting(home: Path) -> Iterator[CountingStation]:
    station = CountingStation(home)
    station.start()
    yield station
    station.stop()


def _init(number: int, tmp_path: Path) -> int:
    made = one_effect(copies(number, "init", "--home", str(tmp_path / "new"), "--request-id", "i"))
    assert made["made"] == ["pod.secret", "state.db"]
    return 1


def _trace_import(number: int, tmp_path: Path) -> int:
    source = tmp_path / "source.json"
    source.write_text(json.dumps({"ids": [[[0, 1]], [[2, 3]]], "layers": [1], "experts": 4}))
    out = tmp_path / "out.k3trace"
    found = one_effect(
        copies(number, "trace", "import", str(source), str(out), "--request-id", "t")
    )
    return int(out.exists() and found["tokens"] == 2)


def _pod(number: int, home: Path, pod_file: Path) -> None:
    """pod up, then pod down."""
    one_effect(copies(number, "pod", "up", str(pod_file), "--request-id", "up"))
    assert len(list(find_daemons(home))) == 3
    for name in ("station", "spark-1", "spark-2"):
        assert (home / "run" / f"{name}.log").read_text().count('"serving"') == 1
    gone = one_effect(copies(number, "pod", "down", "--request-id", "down"))
    assert {node["outcome"] for node in gone["nodes"]} == {"stopped"}
    assert not list(find_daemons(home))


def _measure(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    program, counts = measuring_k3d(tmp_path)
    monkeypatch.setenv("K3_DAEMON", program)
    one_effect(copies(number, "placement", "measure", "--request-id", "m"))
    return counts.read_text().count("once")


def _bank(number: int, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    folder = tmp_path / verb
    folder.mkdir()
    program, counts = counting_k3d(folder, BANKS[verb])
    monkeypatch.setenv("K3_DAEMON", program)
    sure = ["--yes"] if verb == "gc" else []
    one_effect(copies(number, "bank", verb, *sure, "--request-id", f"bank-{verb}"))
    return counts.read_text().count("once")


@pytest.mark.parametrize("words", ASKED, ids=" ".join)
def test_the_station_is_asked_once(counting: CountingStation, words: Words) -> None:
    one_effect(copies(FEW, *words, *ASKED[words], "--request-id", "once"))
    assert list(counting.changed.values()) == [1]


def test_a_home_is_made_once(home: Path, tmp_path: Path) -> None:
    assert _init(FEW, tmp_path) == 1


def test_a_trace_is_imported_once(home: Path, tmp_path: Path) -> None:
    assert _trace_import(FEW, tmp_path) == 1


def test_a_pod_goes_up_and_down_once(home: Path, fake_k3d: None, pod_file: Path) -> None:
    _pod(FEW, home, pod_file)


def test_a_measurement_is_made_once(
    counting: CountingStation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _measure(FEW, tmp_path, monkeypatch) == 1


@pytest.mark.parametrize("verb", BANKS)
def test_work_on_banks_is_done_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    assert _bank(FEW, verb, tmp_path, monkeypatch) == 1


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_fifty_copies_of_everything_else(
    counting: CountingStation, home: Path, fake_k3d: None, pod_file: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for words, arguments in ASKED.items():
        before = counting.changed.total()
        one_effect(copies(MANY, *words, *arguments, "--request-id", "-".join(words)))
        assert counting.changed.total() == before + 1, words
    assert _init(MANY, tmp_path) == 1
    assert _trace_import(MANY, tmp_path) == 1
    counting.stop()
    _pod(MANY, home, pod_file)
    assert _measure(MANY, tmp_path, monkeypatch) == 1


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("verb", BANKS)
def test_fifty_copies_of_work_on_banks(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    assert _bank(MANY, verb, tmp_path, monkeypatch) == 1


def test_every_verb_that_changes_something_is_run_here() -> None:
    elsewhere = {("init",), ("pod", "up"), ("pod", "down"), ("trace", "import"),
                 ("placement", "measure")}  # fmt: skip
    assert {words for words, _ in mutating()} == {*ASKED, *elsewhere, *(("bank", v) for v in BANKS)}


def test_a_copy_in_another_form_says_it_in_words(k3ctl: K3ctl, counting: CountingStation) -> None:
    arguments = ["placement", "abort", "--request-id", "x"]
    assert "swap i aborted" in k3ctl(*arguments).out
    again = k3ctl(*arguments)
    assert again.code == 0
    assert f"was done already by k3ctl placement abort (pid {os.getpid()} of " in again.out
    assert k3ctl(*arguments, "--json").document["intent"] == "i"
    assert counting.changed["/placement/abort"] == 1


def test_an_id_that_was_used_for_something_else_is_refused(
    k3ctl: K3ctl, counting: CountingStation
) -> None:
    assert k3ctl("placement", "swap", "contiguous", "--request-id", "x").code == 0
    for other in (["placement", "swap", "layer-balanced"], ["placement", "abort"]):
        ran = k3ctl(*other, "--request-id", "x", "--json")
        assert ran.code == ExitCode.REFUSED
        assert "request id x was used" in ran.error["message"]
    waited = ["placement", "swap", "contiguous", "--deadline", "9", "--request-id", "x"]
    assert k3ctl(*waited).code == 0, "how long it waits is not what it does"
    assert counting.changed == {"/placement/swap": 1}


def test_a_request_that_failed_may_be_tried_again(k3ctl: K3ctl, home: Path) -> None:
    arguments = ["placement", "abort", "--request-id", "x"]
    assert k3ctl(*arguments).code == ExitCode.UNREACHABLE
    station = CountingStation(home)
    station.start()
    try:
        again = k3ctl(*arguments)
    finally:
        station.stop()
    assert again.code == 0
    assert "request x was left undone by" in again.err
    assert station.changed["/placement/abort"] == 1


def test_a_dry_run_claims_nothing(k3ctl: K3ctl, tmp_path: Path) -> None:
    new = tmp_path / "new"
    ran = k3ctl("init", "--home", str(new), "--dry-run", "--request-id", "x")
    assert ran.code == 0
    assert not new.exists()


def test_a_home_that_is_not_there_is_not_made_for_a_request(k3ctl: K3ctl, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    ran = k3ctl("pod", "down", "--home", str(nowhere), "--request-id", "x")
    assert (ran.code, nowhere.exists()) == (0, False)


def test_two_names_of_one_file_are_one_request(
    k3ctl: K3ctl, counting: CountingStation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert k3ctl("trace", "record", "t", "--request-id", "x").code == 0
    assert k3ctl("trace", "record", str(tmp_path / "t"), "--request-id", "x").code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert k3ctl("trace", "record", "t", "--request-id", "x").code == ExitCode.REFUSED
    assert counting.changed == {"/trace/record": 1}
