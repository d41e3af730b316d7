"""The console in a real terminal: tmux, 200 sparks, a storm of sizes, and what it costs.

The campaign measures, for K3_CAMPAIGN_S seconds (600), and prints what it found: share of a core
while nobody types, then key to paint under a storm of keys, and memory. The short form only sees
that everything works at every size, whatever size a shell exported.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.tui.tmux_session import started

SPARKS = 200
SIZES = ((60, 15), (80, 24), (120, 40), (250, 70))
MOST_P99_MS = 100.0
MOST_CORE_SHARE = 0.25
MOST_GROWTH_BYTES = 8 * 2**20
PROGRAM = [sys.executable, "-m", "tests.tui.run_simulated", "--sparks", str(SPARKS)]

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def test_the_console_lives_in_a_terminal_of_any_size(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    for name, size in (("COLUMNS", "80"), ("LINES", "24")):  # exported once, and wrong since
        monkeypatch.setenv(name, size)
    with started(tmp_path, 120, 40, PROGRAM) as session:
        session.until_shown("Needs attention")
        program = psutil.Process(session.pid)
        for width, height in SIZES:
            session.resize(width, height)
            session.press("1")
            session.until_shown("Needs attention")
            session.press("5")
            session.until_shown("HOP P99")
            lines = session.until_shown("spark-1 ")
            assert len(lines) <= height
            assert max(len(line) for line in lines) <= width
        for _ in range(40):
            session.resize(draw.randrange(10, 260), draw.randrange(3, 80))
        session.resize(80, 24)
        session.press("6")
        session.until_shown("req-001")
        session.press("q")
        gone, _ = psutil.wait_procs([program], timeout=60)
        assert gone


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_key_to_paint_cpu_and_memory(tmp_path: Path, size: tuple[int, int]) -> None:
    seconds = float(os.environ.get("K3_CAMPAIGN_S", "600"))
    with started(tmp_path, *size, PROGRAM) as session:
        session.until_shown("Needs attention")
        session.press("5")
        session.until_shown("spark-1 ")
        process = psutil.Process(session.pid)
        taken: list[float] = []
        rss: list[int] = []
        begun, cpu_begun = time.monotonic(), sum(process.cpu_times()[:2])
        with pytest.raises(psutil.TimeoutExpired):  # it lives on, with a frame a second
            process.wait(seconds / 2)
        share = (sum(process.cpu_times()[:2]) - cpu_begun) / (time.monotonic() - begun)
        at, way = 0, 1
        while time.monotonic() - begun < seconds:
            at += way
            key = "Down" if way > 0 else "Up"
            way = -way if at in (0, 150) else way
            name = "station" if at == 0 else f"spark-{at}"
            taken.append(session.painted_after(key, rf"▌[^\n]{{0,60}}?{name}\b"))
            if len(taken) % 20 == 0:
                rss.append(process.memory_info().rss)
    _report(size, taken, rss, share)


def _report(size: tuple[int, int], taken: list[float], rss: list[int], share: float) -> None:
    ordered = sorted(taken)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    half = rss[len(rss) // 2 :]
    print(
        f"{size[0]}x{size[1]}: {len(taken)} keys, median {statistics.median(taken):.1f} ms, "
        f"p99 {p99:.1f} ms, {100 * share:.1f} % of a core, "
        f"{rss[0] / 2**20:.1f} to {rss[-1] / 2**20:.1f} MiB"
    )
    assert p99 <= MOST_P99_MS
    assert share <= MOST_CORE_SHARE
    assert max(half) - min(half) <= MOST_GROWTH_BYTES
