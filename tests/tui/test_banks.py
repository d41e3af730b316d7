"""The banks pane: the listing, work under way, and work begun from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.dialogs import ConfirmDialog
from k3ctl.tui.ink import text_of, width_of
from k3ctl.tui.marks import ASCII, UNICODE
from k3ctl.tui.screens import banks as pane_module
from k3ctl.tui.screens.banks import EVERY_FRAMES, BanksPane, work_line
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.row_table import RowTable
from k3d.errors import K3Error
from k3d.store.frame import BankWorkFrame
from tests.tui.driven import StillSource, drive, opened, until
from tests.tui.fake_station import FakeStation
from tests.tui.shown import shows
from tests.tui.simulated_pod import BEGIN_MS, SimulatedPod

WORK = BankWorkFrame(
    kind="stage", node="spark-1", bank="k3-mini.bank", done_bytes=3 * 2**20, size_bytes=12 * 2**20,
    bytes_per_s=2.0 * 2**20, left_s=4.5, found=2,
)  # fmt: skip


def bank(node: str, state: str, **changes: Any) -> dict[str, Any]:
    """A row of `k3d bank ls`."""
    return {
        "node": node, "file": f"k3-mini-30632cccc8c7.{node}.bank", "state": state, "reason": None,
        "model": "k3-mini", "model_digest": "30632cccc8c7", "map": "12ab34cd56", "slice": 1,
        "slices": 4, "format": "nvfp4", "recast_from": None, "records": 307, "content": "3aa6d7",
        "bytes": 10_776_576, "age_s": 8_838.0, "verified_s": None, "scrub_rounds": 0, **changes,
    }  # fmt: skip


class Worker:
    """Stands for the k3d bank child."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Sequence[str]]] = []
        self.error: K3Error | None = None
        self.damages: list[dict[str, Any]] = []
        self.banks = [
            bank("station", "sound", slice=1, slices=1, map=None, records=768,
                 verified_s=BEGIN_MS / 1000 - 5_000),
            bank("spark-1", "damaged", reason="record 3 is not what it was"),
            bank("spark-2", "writing", model=None, records=None),
        ]  # fmt: skip

    def __call__(
        self, verb: str, arguments: Sequence[str], progress: Any
    ) -> tuple[int, dict[str, Any]]:
        self.ran.append((verb, arguments))
        if self.error is not None:
            raise self.error
        if verb == "ls":
            return 0, {"folder": "/home/of/banks", "banks": self.banks}
        return 0, {"banks": self.banks, "damages": self.damages, "time_s": 2.5}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    stand_in = Worker()
    monkeypatch.setattr(pane_module, "run_bank_work", stand_in)
    return stand_in


def working(*works: BankWorkFrame) -> StillSource:
    """A source whose frame has work on banks."""
    return StillSource(msgspec.structs.replace(SimulatedPod().frame(200), bank_work=works))


async def with_banks(app: ConsoleApp, pilot: Any) -> RowTable:
    await opened(app, pilot, "banks", "4")
    table = app.query_one(RowTable)
    await until(pilot, lambda: table.rows and table.has_focus)
    return table


def test_banks_by_node_with_their_state_as_glyph_and_word(home: Path, worker: Worker) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        table = await with_banks(app, pilot)
        await shows(app, pilot, "● sound", "○ damaged", "◐ writing", "30.8 MiB in /home/of/banks")
        assert [row.values[0] for row in table.rows] == ["station", "spark-1", "spark-2"]
        assert worker.ran == [("ls", ["--home", str(home), "--pod", "simulated-8"])]
        await pilot.press("down", "enter")
        await shows(app, pilot, "record 3 is not what it was", "10,776,576 (10.3 MiB)")
        await pilot.press("escape")
        await until(pilot, lambda: table.has_focus)

    drive(body, home=home, live=FakeStation())


def test_work_under_way_is_shown_by_node(home: Path, worker: Worker) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_banks(app, pilot)
        await shows(app, pilot, "spark-1    stage", "25 %", "2.0 MiB/s", "4.5 s left", "2 damaged")

    drive(body, home=home, live=FakeStation(), source=working(WORK))


def test_the_listing_is_made_anew_when_work_ends_and_now_and_then(
    home: Path, worker: Worker
) -> None:
    source = working(WORK)

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_banks(app, pilot)
        pane, snapshot = app.query_one(BanksPane), app.snapshot
        pane.show(snapshot)
        assert len(worker.ran) == 1, "nothing has changed"
        assert snapshot.frame is not None
        idle = msgspec.structs.replace(snapshot.frame, bank_work=())
        later = replace(snapshot, frame=idle, number=snapshot.number + EVERY_FRAMES)
        for wanted, each in ((2, replace(snapshot, frame=idle)), (3, later)):

            def listed(wanted: int = wanted, each: Snapshot = each) -> bool:
                pane.show(each)  # as every tick does
                return len(worker.ran) >= wanted

            await until(pilot, listed)
            assert len(worker.ran) == wanted

    drive(body, home=home, live=FakeStation(), source=source)


def test_verifying_shows_its_line_and_says_what_it_found(
    home: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_banks(app, pilot)
        await pilot.press("V")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await shows(app, pilot, "$ k3ctl bank verify --pod simulated-8")
        await pilot.press("right", "enter")
        await shows(app, pilot, "read in 2.5 s, no damage is left")
        worker.damages = [
            {"node": "spark-1", "file": "a.bank", "layer": 3, "expert": 7, "reason": "another hash",
             "repaired": False, "unrepaired_because": None}
        ]  # fmt: skip
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("right", "enter")
        await shows(app, pilot, "spark-1 a.bank layer 3 expert 7: another hash")

    drive(body, home=home, live=FakeStation())


def test_what_keeps_it_from_listing_is_said(home: Path, worker: Worker) -> None:
    worker.error = K3Error("k3d cannot be started: no such file")

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await opened(app, pilot, "banks", "4")
        await shows(app, pilot, "k3d cannot be started", "no banks in this home")

    drive(body, home=home, live=FakeStation())


@pytest.mark.parametrize("width", [50, 60, 80, 120])
@pytest.mark.parametrize("marks", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_progress_is_words_too(width: int, marks: Any) -> None:
    said = work_line(WORK, marks, width)
    assert width_of(said) <= width
    assert "25 %" in text_of(said)
    assert "2 damaged" in text_of(said)
    assert ("3.0 MiB of 12.0 MiB" in text_of(said)) == (width == 120)
    assert text_of(said).isascii() == marks.ascii
    waiting = msgspec.structs.replace(WORK, bytes_per_s=None, left_s=None, size_bytes=0, found=0)
    assert "left" not in text_of(work_line(waiting, marks, width))


def test_a_pod_that_is_not_there_leaves_the_screen(home: Path) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await opened(app, pilot, "banks", "4")
        await shows(app, pilot, "under way", "no build", "nobody")

    drive(body, source=StillSource(SimulatedPod().frame(1), error=K3Error("nobody")), home=home)
