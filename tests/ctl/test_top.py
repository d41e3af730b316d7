"""k3ctl top: one model between the document and the screen; live without flicker or waiting."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from k3ctl.cli.table import count, duration_us, percent, seconds, size
from k3ctl.cli.top import frame_document
from k3ctl.cli.top_lines import top_lines
from k3ctl.cli.top_tables import celsius, length, rate, watts
from k3ctl.client.frame_watch import FrameWatch, frame_with_rates
from k3ctl.client.moments import length_of_time, local
from k3d.errors import NodeLost, TimedOut
from k3d.store.frame import BankWorkFrame, Frame, SwapFrame
from tests.ctl.conftest import K3ctl
from tests.ctl.recorded import attention, frame, spark
from tests.tui.simulated_pod import SimulatedPod

NOW_MS = 1_796_000_000_123
NUMBER = re.compile(r"\d+(?:[.,:-]\d+)*")


class FakeFrames:
    """A Station's frames: those given, then the last of them."""

    frames: tuple[Frame | Exception, ...] = (frame(NOW_MS),)
    closed = 0

    def __init__(self, home: Path) -> None:
        self._left = iter(self.frames)
        self._last: Frame | Exception = self.frames[-1]

    def latest(self) -> Frame:
        found = next(self._left, self._last)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> type[FakeFrames]:
    class Frames(FakeFrames):
        pass

    monkeypatch.setattr("k3ctl.client.frames.LiveFrames", Frames)
    return Frames


def busy() -> Frame:
    """A frame in which everything that can be shown is there."""
    swap = SwapFrame(
        intent="4f21ab", to="contiguous", phase="copying", wave=2, waves=5, copied_bytes=31 << 20,
        size_bytes=212 << 20, pauses=1, left_s=48.0,
    )  # fmt: skip
    work = BankWorkFrame(
        kind="verify", node="spark-2", bank="k3-mini", done_bytes=77 << 20, size_bytes=99 << 20,
        bytes_per_s=3.5e6, left_s=6.0, found=1,
    )  # fmt: skip
    return frame(
        NOW_MS,
        running=1,  # as many as have a row
        waiting=0,
        swap=swap,
        bank_work=(work,),
        attention=attention("spark-1 was lost 4 times in 5 minutes"),
        reason="1 of 3 nodes is degraded",
        state="degraded",
    )


def leaves(document: Any) -> Iterator[Any]:
    if isinstance(document, dict):
        for value in document.values():
            yield from leaves(value)
    elif isinstance(document, list):
        for value in document:
            yield from leaves(value)
    else:
        yield document


def shown_forms(document: dict[str, Any]) -> set[str]:
    """Every number that a figure of the document may appear as."""
    forms = (
        str, count, size, duration_us, seconds, percent, watts, celsius, rate, length,
        length_of_time, lambda value: local(value / 1000),
    )  # fmt: skip
    found: set[str] = set()
    for value in leaves(document):
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, str):
            found.update(NUMBER.findall(value))
            continue
        for form in forms:
            try:
                found.update(NUMBER.findall(form(value)))
            except (TypeError, ValueError, OverflowError):
                continue
    return found


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("pod", ["busy", "simulated"])
def test_every_figure_on_the_screen_is_in_the_document(
    k3ctl: K3ctl, live, monkeypatch, width: int, pod: str
) -> None:
    live.frames = (busy() if pod == "busy" else SimulatedPod(sparks=20, lanes=6).frame(77),)
    monkeypatch.setattr("k3ctl.cli.top.screen_size", lambda: (width, 24))
    document = k3ctl("top", "--once", "--json").document
    assert document.pop("schema") == "k3ctl.top/1"
    screen = k3ctl("top", "--once").out
    numbers = NUMBER.findall(re.sub(r"(P50|P99|p50|p99)", "", screen))
    assert len(numbers) > 60
    assert set(numbers) <= shown_forms(document)
    assert screen.splitlines() == top_lines(document, width)


def test_the_document_is_the_frame(k3ctl: K3ctl, live) -> None:
    document = k3ctl("top", "--json").document
    del document["schema"]
    assert document == frame_document(live.frames[0])
    assert msgspec.convert(document, Frame) == live.frames[0]


@pytest.mark.parametrize("made", [busy(), SimulatedPod(sparks=9, lanes=5).frame(61)])
def test_the_consoles_overview_shows_the_same_figures(made: Frame) -> None:
    """Of one frame; the console has fewer digits."""
    pytest.importorskip("textual")
    from k3ctl.tui.screens.overview_tiles import tiles_of

    document = frame_document(made)
    screen = "\n".join(top_lines(document, 100))
    tiles = {tile.title: NUMBER.findall(tile.value) for tile in tiles_of(made)}

    def of_top(pattern: str) -> list[float]:
        found = re.search(pattern, screen)
        return [] if found is None else [float(each.replace(",", "")) for each in found.groups()]

    pairs = [
        ("decode", of_top(r"decode ([\d.,]+)")),
        ("token p50/p99", of_top(r"p50 ([\d.,]+) ms, p99 ([\d.,]+) ms")),
        ("acceptance", of_top(r"acceptance ([\d.]+)")),
        ("lanes", of_top(r"(\d+) running of \d+ lanes, (\d+) waiting")),
    ]
    for title, figures in pairs:
        told = [float(each.replace(",", "")) for each in tiles[title]]
        assert figures, title
        assert told == pytest.approx([each for each in figures if each or title != "lanes"], 0.02)


def test_what_is_not_known_is_a_dash_and_null(k3ctl: K3ctl, live) -> None:
    idle = frame(
        NOW_MS,
        decode_tokens_per_s=None, prompt_tokens_per_s=None, token_p50_us=None, token_p99_us=None,
        acceptance_length=None, prefix_hit_share=None, lanes=(), nodes=(spark(1, NOW_MS),),
    )  # fmt: skip
    live.frames = (idle,)
    screen = k3ctl("top").out
    assert "tokens/s: decode -, prompt -, between tokens: p50 -, p99 -" in screen
    assert "prefix hits -" in screen
    assert "LANE" not in screen
    power = next(line for line in screen.splitlines() if line.startswith("spark-1"))
    assert power.split()[-4:-2] == ["-", "-"]
    assert k3ctl("top", "--json").document["decode_tokens_per_s"] is None


@pytest.mark.parametrize("columns", [40, 60, 80, 250])
def test_it_fits_the_terminal(columns: int) -> None:
    for pod in (busy(), SimulatedPod(sparks=200, lanes=20).frame(5)):
        for height in (8, 15, 24, 60):
            lines = top_lines(frame_document(pod), columns, height)
            if columns >= 60:
                assert max(map(len, lines)) <= columns
            if height >= 24 and columns >= 80:
                assert len(lines) <= height


def test_what_is_cut_is_counted_and_the_unwell_come_first() -> None:
    pod = SimulatedPod(sparks=200, lanes=20).frame(5)
    lines = top_lines(frame_document(pod), 100, 30)
    first = next(number for number, line in enumerate(lines) if line.startswith("NODE"))
    assert "down" in lines[first + 1]
    cut = next(line for line in lines if line.endswith("nodes more"))
    shown = sum(1 for line in lines[first:] if line.startswith(("spark-", "station")))
    assert int(cut.split()[1]) == 201 - shown


def test_ascii_where_nothing_else_shows(k3ctl: K3ctl, live, monkeypatch) -> None:
    live.frames = (busy(),)
    monkeypatch.setenv("LC_ALL", "C")
    assert k3ctl("top").out.isascii()


def test_columns_for_scripts(k3ctl: K3ctl, live) -> None:
    nodes = k3ctl("top", "-H", "-p", "-o", "node,state,hop_p50,power").out
    power_w = live.frames[0].nodes[0].sensors.power_w
    assert nodes.splitlines()[0] == f"station\thealthy\t281\t{power_w:.9g}"
    assert nodes.splitlines()[1] == "spark-1\thealthy\t3041\t-"
    tiers = k3ctl("top", "-o", "tier,hops").out
    assert tiers.splitlines()[0].split() == ["TIER", "HOPS"]
    wrong = k3ctl("top", "-o", "watts")
    assert (wrong.code, wrong.out) == (2, "")


def test_rates_need_a_second_frame(live) -> None:
    first, second = frame(NOW_MS, sequence=0), frame(NOW_MS + 1_000, sequence=1)
    live.frames = (first, first, second)
    assert frame_with_rates(live(Path())) == second
    live.frames = (second,)
    assert frame_with_rates(live(Path())) == second


def test_a_station_that_takes_no_frames_is_not_waited_for(live, monkeypatch) -> None:
    live.frames = (frame(NOW_MS, sequence=0),)
    clock = itertools.count(0.0, 2.0)
    monkeypatch.setattr("k3ctl.client.frame_watch.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("k3ctl.client.frame_watch.time.sleep", lambda _: None)
    with pytest.raises(TimedOut, match="takes no frames"):
        frame_with_rates(live(Path()))


def test_jsonl_is_a_frame_a_line_each_once(k3ctl: K3ctl, live) -> None:
    first, second = frame(NOW_MS), frame(NOW_MS + 1_000)
    live.frames = (first, first, first, second)
    ran = k3ctl("top", "--jsonl", "-n", "2", "--interval", "0.25")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["at_ms"] for line in lines] == [first.at_ms, second.at_ms]
    assert {line["type"] for line in lines} == {"frame"}
    once = k3ctl("top", "--jsonl", "--once")
    assert len(once.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["-n", "2"], "of --jsonl"), (["--interval", "0.1"], "0.1"), (["--interval", "nan"], "nan"),
     (["more"], "unexpected")],
)  # fmt: skip
def test_wrong_arguments(k3ctl: K3ctl, live, arguments, said) -> None:
    ran = k3ctl("top", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_without_a_station_it_says_so(k3ctl: K3ctl, home: Path) -> None:
    ran = k3ctl("top", "--once")
    assert (ran.code, ran.out) == (3, "")
    assert "k3ctl pod up" in ran.err
    assert k3ctl("top", "--json").error["code"] == 3


def test_the_watch_keeps_the_last_frame_and_never_waits(live) -> None:
    released, told = threading.Event(), threading.Semaphore(0)

    class Hanging:
        def latest(self) -> Frame:
            released.wait(20)
            raise NodeLost("station", "the Station cannot be reached")

    watch = FrameWatch(Hanging(), 0.01, told.release, frame(NOW_MS))
    watch.start()
    assert watch.seen.frame is not None
    assert watch.seen.error is None
    released.set()
    assert told.acquire(timeout=20)
    assert watch.seen.frame == frame(NOW_MS)
    assert watch.seen.error is not None
    watch.close()


LIVE = """
import sys
from tests.ctl.test_top import FakeFrames, NOW_MS, frame
import k3ctl.client.frames as frames
from k3ctl.cli.main import main

class Frames(FakeFrames):
    frames = tuple(frame(NOW_MS + 1000 * n) for n in range(900))

frames.LiveFrames = Frames
sys.argv = ["k3ctl", "top", "--interval", "0.25"]
main()
"""


@pytest.fixture
def terminal(home: Path) -> Iterator[Any]:
    """k3ctl top on a terminal of its own: the process and our end of the terminal."""
    ours, theirs = pty.openpty()
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", LIVE],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=root,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
    )
    os.close(theirs)
    yield process, ours
    process.kill()
    process.wait()
    os.close(ours)


def read_until(terminal: int, found: bytes, times: int = 1) -> bytes:
    """What comes until something was there so many times. Fails after a while without."""
    text, deadline = b"", time.monotonic() + 30
    while text.count(found) < times:
        assert time.monotonic() < deadline, text[-2_000:]
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                text += os.read(terminal, 65_536)
            except OSError:
                break
    return text


def test_on_a_terminal_it_redraws_in_place_and_q_ends_it(terminal) -> None:
    process, ours = terminal
    text = read_until(ours, b"\x1b[?2026l", times=3)
    assert text.startswith(b"\x1b[?1049h\x1b[?25l")
    assert b"\x1b[2J" not in text  # a screen that is cleared flickers
    draws = text.split(b"\x1b[?2026h")[1:]
    for draw in draws[:2]:
        assert draw.startswith(b"\x1b[H")
        assert draw.count(b"\n") < 24
    assert b"q quits" in text
    os.write(ours, b"q")
    text = read_until(ours, b"\x1b[?1049l")
    assert b"\x1b[?25h\x1b[?1049l" in text
    assert process.wait(timeout=20) == 0


def test_told_to_end_it_gives_the_terminal_back(terminal) -> None:
    process, ours = terminal
    read_until(ours, b"\x1b[?2026l")
    process.send_signal(signal.SIGTERM)
    text = read_until(ours, b"\x1b[?1049l")
    assert b"Traceback" not in text
    assert process.wait(timeout=20) == 143
