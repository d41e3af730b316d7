"""Traces of live traffic: what is in them, what bounds them, and that tokens do not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from k3ctl.cli.main import run
from k3ctl.cli.trace_record import how_far
from k3d.placement.trace import read_trace
from k3d.station.trace_recorder import STRETCH
from tests.station.conftest import RunningPod
from tests.station.swapping import Lane

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
TOKENS = 30
PASSED = len(PROMPT) + TOKENS - 1
"""Tokens that go through the experts: all but the last."""


def k3ctl(pod: RunningPod, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run(["trace", "record", *words, "--json", "--home", str(pod.home)]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out if code == 0 else captured.err.splitlines()[-1])


def status(pod: RunningPod) -> dict[str, Any]:
    with pod.call("/trace") as response:
        return json.load(response)


def test_the_routing_of_every_token_is_recorded_in_its_order(
    inproc_pod: RunningPod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod, path = inproc_pod, tmp_path / "live.trace"
    before = pod.ids(prompt_ids=PROMPT, max_tokens=TOKENS)
    found = []
    for _ in range(2):
        begun = k3ctl(pod, capsys, str(path), "--detach")
        assert (begun["state"], begun["tokens"]) == ("recording", 0)
        other = k3ctl(pod, capsys, str(tmp_path / "other"), "--detach", code=11)
        assert other["name"] == "LOCKED"
        assert pod.ids(prompt_ids=PROMPT, max_tokens=TOKENS, seed=5) == before
        done = k3ctl(pod, capsys, "--stop")
        assert (done["state"], done["left_out"]) == ("done", 0)
        assert k3ctl(pod, capsys, "--stop")["state"] == "done", "again is no error"
        found.append(read_trace(path))
    first, second = found
    assert first.tokens <= PASSED
    assert np.array_equal(first.ids[:, -TOKENS + 1 :], second.ids[:, -TOKENS + 1 :])
    assert first.weights is not None
    assert float(first.weights.astype(np.float32).sum(-1).min()) > 0
    assert set(first.sequence) == {0}


def test_a_budget_ends_it(
    inproc_pod: RunningPod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ten.trace"
    k3ctl(inproc_pod, capsys, str(path), "--tokens", "10", "--no-weights", "--detach")
    inproc_pod.ids(prompt_ids=PROMPT, max_tokens=TOKENS)
    inproc_pod.wait("the file", path.exists)
    trace = read_trace(path)
    assert (trace.tokens, trace.weights) == (10, None)


def test_progress_counts_tokens_as_they_come_and_never_more_than_all(
    inproc_pod: RunningPod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a stretch that is not handed on yet."""
    path = tmp_path / "live.trace"
    k3ctl(inproc_pod, capsys, str(path), "--detach")
    inproc_pod.ids(prompt_ids=PROMPT, max_tokens=TOKENS)
    assert PASSED < STRETCH
    now = status(inproc_pod)
    assert (now["state"], now["tokens"]) == ("recording", PASSED)
    done = k3ctl(inproc_pod, capsys, "--stop")
    assert (done["state"], done["tokens"]) == ("done", read_trace(path).tokens)
    assert done["tokens"] == PASSED
    words, part = how_far(now | {"seconds": 12.2}, 1000, 12.0)
    assert (words, part) == (f"{PASSED} tokens of 1,000 in 12.0 of 12.0 s", 1.0)
    assert how_far(now | {"seconds": 1.0}, PASSED - 1, 4.0)[1] == 1.0
    assert how_far(now | {"seconds": 1.0}, 100_000, 4.0)[1] == 0.25


def test_a_file_that_is_replaced_is_named(
    inproc_pod: RunningPod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.trace"
    path.write_text("another trace")
    words = ["trace", "record", str(path), "--home", str(inproc_pod.home)]
    assert run([*words, "--seconds", "0.2"]) == 1, "no token came"
    assert "replaced" not in capsys.readouterr().err
    assert path.read_text() == "another trace"
    assert run([*words, "--tokens", "5", "--detach"]) == 0
    assert f"{path} is there and is replaced when" in " ".join(capsys.readouterr().err.split())
    lane = Lane(inproc_pod, inproc_pod.ids(prompt_ids=PROMPT, max_tokens=TOKENS))
    inproc_pod.wait("the end", lambda: status(inproc_pod)["state"] == "done")
    assert run([*words, "--tokens", "5"]) == 0
    lane.end()
    assert f"replaced {path}" in " ".join(capsys.readouterr().err.split())
    assert read_trace(path).tokens == 5


def test_what_cannot_be_recorded_is_one_sentence(
    inproc_pod: RunningPod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = k3ctl(inproc_pod, capsys, str(tmp_path / "no" / "such.trace"), code=1)
    assert "cannot be written" in missing["message"]
    nothing = k3ctl(inproc_pod, capsys, str(tmp_path / "empty"), "--seconds", "0.2", code=1)
    assert "holds no token" in nothing["message"]
    assert not list(tmp_path.glob("empty*"))
    assert k3ctl(inproc_pod, capsys, code=2)["name"] == "USAGE"
