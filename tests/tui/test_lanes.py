"""The lanes pane: what its sums count, beside its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.ink import text_of, width_of
from k3ctl.tui.lane_sums import MOST_LISTED, lane_sums
from k3ctl.tui.marks import UNICODE
from k3ctl.tui.screens.lanes import lane_lines, sums_lines
from k3d.store.frame import Frame, LaneFrame
from tests.tui.driven import StillSource, drive, opened, rows_of
from tests.tui.shown import shows
from tests.tui.simulated_pod import SimulatedPod


def lane(number: int, phase: Any = "decode", rate: float | None = 10.0, **more: Any) -> LaneFrame:
    return LaneFrame(
        id=f"req-{number}", source="chat", phase=phase, age_s=1.0,
        tokens_per_s=rate if phase == "decode" else None, **{"prompt_tokens": 9, **more},
    )  # fmt: skip


def frame(lanes: Sequence[LaneFrame], rate: float | None, **more: Any) -> Frame:
    """One whose own counts of requests are of another moment than its rows."""
    whole = SimulatedPod(sparks=1).frame(200)
    changed = {"running": 1, "waiting": 7, **more}
    return msgspec.structs.replace(
        whole, lanes=tuple(lanes), decode_tokens_per_s=rate, most_lanes=16, **changed
    )


def test_requests_are_counted_from_the_rows() -> None:
    found = lane_sums(frame([lane(1), lane(2, "prompt"), lane(3, "waiting")], 10.0))
    assert (found.running, found.waiting, found.unlisted) == (2, 1, 0)
    assert found.rows_tokens_per_s == 10.0
    assert not found.ended_too


def test_what_waits_and_has_no_row_is_said() -> None:
    lanes = [lane(each, "waiting") for each in range(MOST_LISTED)]
    found = lane_sums(frame(lanes, None, waiting=90))
    assert (found.running, found.waiting, found.unlisted) == (0, 90, 26)
    assert "90 waiting, 26 not listed" in text_of(
        sums_lines(frame(lanes, None, waiting=90), 200)[0]
    )


@pytest.mark.parametrize(
    ("lanes", "rate", "said"),
    [([lane(1), lane(2)], 20.0, "20.0 tokens/s  "), ([lane(1), lane(2)], 20.1, "20.1 tokens/s  "),
     ([lane(1), lane(2, rate=None)], 33.5, "33.5 tokens/s, 10.0 in the rows  "),
     ([], 57.0, "57.0 tokens/s, none in the rows  "), ([], None, "- tokens/s  ")],
)  # fmt: skip
def test_tokens_of_requests_that_have_ended_are_told_apart(
    lanes: Sequence[LaneFrame], rate: float | None, said: str
) -> None:
    assert said in text_of(sums_lines(frame(lanes, rate), 200)[0])


def test_the_sums_above_are_those_of_the_rows_below() -> None:
    source = StillSource(frame([lane(1), lane(2), lane(3, "prompt")], 20.0))

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await opened(app, pilot, "lanes", "6")
        assert rows_of(app) == ["req-1", "req-2", "req-3"]
        await shows(app, pilot, "3 of 16 lanes  0 waiting  20.0 tokens/s")
        await opened(app, pilot, "overview", "1")
        await shows(app, pilot, "3 of 16")

    drive(body, source=source)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_sums_are_whole_whatever_the_width(width: int) -> None:
    lines = sums_lines(frame([lane(1)], 33.0), width)
    assert all(width_of(each) <= width for each in lines)
    assert "33.0 tokens/s, 10.0 in the rows" in "\n".join(map(text_of, lines))


def test_one_of_something_is_one() -> None:
    page = lane(1, prompt_tokens=1, written_tokens=1, preempted=1)
    lines = [text_of(each) for each in lane_lines(page, UNICODE, 80)]
    assert any(each.endswith("1 token") and each.startswith("written") for each in lines)
    assert any(each.endswith("1 time") for each in lines)
