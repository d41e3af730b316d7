"""k3ctl replay: the frame of a moment, and the console from there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from k3ctl.client.moments import local
from k3ctl.client.replayed import Pace, Replayed
from k3d.errors import NotFound
from k3d.store.frame import Frame
from tests.ctl.conftest import K3ctl
from tests.ctl.recorded import FakeRecording, frame, record_frames

STEP_MS = 1_000


@pytest.fixture
def last_ms() -> int:
    return int(time.time()) * 1000


@pytest.fixture
def recorded(home: Path, last_ms: int) -> Path:
    """Three minutes of frames, one a second; what they count grows."""
    first = last_ms - 180 * STEP_MS
    frames = [frame(first + n * STEP_MS, finished=n, uptime_s=9.0 + n) for n in range(181)]
    record_frames(home, frames)
    return home


def test_the_frame_of_a_moment(k3ctl: K3ctl, recorded: Path, last_ms: int) -> None:
    document = k3ctl("replay", "--at", local(last_ms / 1000 - 60), "--json").document
    assert document["schema"] == "k3ctl.replay/1"
    assert document["at_ms"] == last_ms - 60 * STEP_MS
    assert document["finished"] == 120
    shown = k3ctl("replay", "--at", local(last_ms / 1000 - 60)).out
    assert "120 finished" in shown
    assert local(last_ms / 1000 - 60) in shown
    assert k3ctl("replay", "--once").out.startswith("embedded, ● healthy")
    assert k3ctl("replay", "--json").document["finished"] == 180


def test_every_frame_from_there_on(k3ctl: K3ctl, recorded: Path, last_ms: int) -> None:
    since, until = local(last_ms / 1000 - 60), local(last_ms / 1000 - 50)
    lines = k3ctl("replay", "--at", since, "--until", until, "--jsonl").out.splitlines()
    assert [json.loads(line)["finished"] for line in lines] == list(range(120, 131))
    assert len(k3ctl("replay", "--at", since, "--once", "--jsonl").out.splitlines()) == 1


def test_columns_of_the_past(k3ctl: K3ctl, recorded: Path) -> None:
    assert k3ctl("replay", "-H", "-o", "node").out.splitlines() == ["station", "spark-1", "spark-2"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(["--at", "noon"], 2, "'noon' is no time"), (["--at", "2d"], 10, "no frame was recorded at"),
     (["--at", "1h", "--until", "2h"], 2, "is before --at"), (["--speed", "0"], 2, "0"),
     (["--speed", "inf"], 2, "inf")],
)  # fmt: skip
def test_moments_that_cannot_be_shown(k3ctl: K3ctl, recorded: Path, arguments, code, said) -> None:
    ran = k3ctl("replay", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_before_the_first_it_says_when_that_was(k3ctl: K3ctl, recorded: Path, last_ms) -> None:
    ran = k3ctl("replay", "--at", "3h")
    assert local(last_ms / 1000 - 180) in ran.err
    assert local(last_ms / 1000) in ran.err


def test_a_home_that_recorded_nothing(k3ctl: K3ctl, home: Path) -> None:
    ran = k3ctl("replay", "--at", "03:12")
    assert ran.code == 10
    assert "k3ctl pod up" in ran.err
    assert not (home / "telemetry.db").exists()


@pytest.mark.parametrize(
    ("speed", "interval_s", "step_ms"),
    [(0.5, 2.0, 1_000), (1.0, 1.0, 1_000), (4.0, 0.25, 1_000), (60.0, 0.25, 15_000)],
)
def test_a_pace_is_the_speed(speed: float, interval_s: float, step_ms: int) -> None:
    assert Pace.of(speed) == Pace(interval_s, step_ms)


def moment_of(found: Frame | None) -> int | None:
    return None if found is None else found.at_ms


def recording(count: int = 200) -> FakeRecording:
    return FakeRecording([frame(1_000_000 + n * STEP_MS) for n in range(count)])


def test_a_part_of_a_recording_has_its_own_ends() -> None:
    part = Replayed(recording(), 1_010_500, 1_100_000)
    assert part.span() == (1_010_500, 1_100_000)
    assert part.at(1_005_000) is None
    assert moment_of(part.at(1_050_999)) == 1_050_000
    assert moment_of(part.at(9_000_000)) == 1_100_000
    assert moment_of(part.after(1_050_000)) == 1_051_000
    assert part.after(1_100_000) is None
    assert [each.at_ms for each in part.between(1_098_000, 9_000_000, 50)] == [
        *(1_098_000, 1_099_000, 1_100_000),
    ]


def test_a_fast_replay_steps_and_still_ends_at_the_end() -> None:
    part = Replayed(recording(), None, None, step_ms=15_000)
    shown, at = [], 1_000_000
    while (following := part.after(at)) is not None:
        at = following.at_ms
        shown.append(at)
    assert shown[:3] == [1_005_000, 1_020_000, 1_035_000]
    assert moment_of(part.at(1_051_999)) == 1_051_000  # what is sought is not stepped over
    assert moment_of(part.at(9_999_999)) == 1_199_000


def test_a_part_with_nothing_in_it() -> None:
    with pytest.raises(NotFound, match="then"):
        Replayed(recording(), 5_000_000, 6_000_000)
    with pytest.raises(NotFound, match="in this home"):
        Replayed(FakeRecording([]), None, None)
