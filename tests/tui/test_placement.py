"""The placement pane: comparing, dry runs, and changes that show their line first."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from k3ctl.client.candidates import Candidate, Choice, Prediction, TierPrediction, Times
from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.dialogs import ConfirmDialog
from k3ctl.tui.ink import text_of, width_of
from k3ctl.tui.marks import ASCII, UNICODE
from k3ctl.tui.screens import placement as pane_module
from k3ctl.tui.screens import placement_changes, placement_comparing
from k3ctl.tui.screens.placement import PlacementPane
from k3ctl.tui.screens.placement_view import plan_sentence, swap_lines
from k3ctl.tui.widgets.row_table import RowTable
from k3ctl.tui.writing import WriteGuard
from k3d.errors import K3Error, NodeLost
from k3d.store.frame import SwapFrame
from tests.tui.driven import DEADLINE_S, StillSource, drive, opened, until
from tests.tui.fake_station import TIERS, FakeStation, placed
from tests.tui.shown import shows, text
from tests.tui.simulated_pod import SimulatedPod, SimulatedRecording

TOKEN = "5d57617604f8b9d7"
PLAN: dict[str, Any] = {
    "name": "contiguous", "epoch": 7, "token": TOKEN, "copies": 531, "parked": 0,
    "size_bytes": 7_444_480, "rate_bytes_s": 67_108_864,
    "seconds": {"value": 0.111, "provenance": "modelled"},
    "tiers": [
        {"name": tier, "slots": 768, "experts_now": 192, "experts_then": 192, "in": 40, "out": 40,
         "free_slots_now": 576, "most_staged": 40, "size_bytes": 1_861_120}
        for tier in TIERS
    ],
    "nodes": [{"name": "station", "size_bytes": 5_583_360}],
    "waves": [{"epoch": 8, "copies": 531, "into": {}, "to_sparks": True}],
    "intent": None,
}  # fmt: skip
IN_FORCE = {"placement": "cost-ranked", "policy": "layer-balanced"}
LAST: dict[str, Any] = {
    "intent": "aa", "state": "done", "name": "hot-cold", "seconds": 1.7,
    "effects": [
        {"tier": "hbm", "moment": moment, "hops": 500, "p50_us": 320.0, "p99_us": 900.0,
         "provenance": "measured"}
        for moment in ("before", "after")
    ],
}  # fmt: skip
SWAP = SwapFrame(
    intent="bb", to="contiguous", phase="staging", wave=1, waves=2, copied_bytes=3_500_000,
    size_bytes=7_000_000, pauses=1, paused="hops are slow", left_s=0.5,
)  # fmt: skip


def candidate(name: str, **changes: Any) -> Candidate:
    """One that takes a quarter of the time now."""
    now, then = Times(4_000.0, 3_900.0, 5_000.0), Times(1_000.0, 900.0, 1_500.0)
    tiers = tuple(
        TierPrediction(tier, 0.25, 0.1 * (at + 1), 1_000.0, 250.0, "measured", "receipt r1")
        for at, tier in enumerate(TIERS)
    )
    facts: dict[str, Any] = {
        "name": name,
        "argument": name,
        "epoch": 7,
        "tiers": TIERS,
        "slots": dict.fromkeys(TIERS, 768),
        "counts_now": placed().counts,
        "counts_then": dict.fromkeys(TIERS, 192),
        "moves": 531,
        "tier_of": bytes(at % 4 for at in range(768)),
        "prediction": Prediction("/somewhere/live.k3trace", 309, now, then, tiers),
    }
    return Candidate(**{**facts, **changes})


class Asked:
    """Stands for the client of swaps; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.error: K3Error | None = None
        self.plan: dict[str, Any] = PLAN
        self.ended = threading.Event()

    def ask_for_swap(self, home: Path, body: dict[str, Any]) -> dict[str, Any]:
        return self._answer("swap", body)

    def ask_for_rollback(self, home: Path, body: dict[str, Any]) -> dict[str, Any]:
        return self._answer("rollback", body)

    def ask_for_abort(self, home: Path) -> dict[str, Any]:
        return {"intent": "bb", "state": "cancelled"} if self._answer("abort", {}) else {}

    def wait_for_swap(self, home: Path, intent: str, deadline_s: float, tell: Any) -> Any:
        assert self.ended.wait(DEADLINE_S), "nobody let the swap end"
        return {**LAST, "intent": intent}

    def placement_argument(self, name: str) -> str:
        return name

    def _answer(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((verb, body))
        if self.error is not None:
            raise self.error
        return {**self.plan, "intent": None if body.get("dry_run") else "cc"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Candidates and swaps without a pod."""
    stand_in = Asked()

    def weigh(home: Path, name: str, trace: Path | None, *, keep: bool) -> Candidate:
        if name == "optimised":
            raise K3Error("optimised ranks experts by a trace and there is none", hint="record one")
        return candidate(name, argument=name if keep or name != "hot-cold" else None)

    listed = [
        Choice("contiguous", "policy", "contiguous", False),
        Choice("hot-cold", "policy", "hot-cold", True),
        Choice("optimised", "policy", "optimised", True),
        Choice("broken", "policy", "-", False, "broken.toml: it is no TOML"),
    ]
    monkeypatch.setattr(placement_changes, "swaps", stand_in)
    monkeypatch.setattr(placement_changes, "weigh", weigh)
    monkeypatch.setattr(placement_comparing, "weigh", weigh)
    monkeypatch.setattr(pane_module, "choices", lambda home: listed)
    monkeypatch.setattr(placement_comparing, "map_of_epoch", lambda home, epoch: placed())
    return stand_in


def station() -> FakeStation:
    return FakeStation(document={**IN_FORCE, "last": LAST})


async def with_choices(app: ConsoleApp, pilot: Any) -> RowTable:
    await opened(app, pilot, "placement", "3")
    table = app.query_one("#placement-choices", RowTable)
    await until(pilot, lambda: table.rows and table.has_focus)
    await shows(app, pilot, "swapped in for")
    return table


def dialog_text(app: ConsoleApp) -> str:
    """The dialog's words without its frame, as one line."""
    return " ".join(text(app).replace("│", " ").split())


def test_enter_compares_a_candidate_with_the_map_in_force(home: Path, asked: Asked) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await pilot.press("enter")
        await shows(
            app, pilot, "contiguous beside epoch 7", "531 experts move", "75.0 % less (modelled)",
            "309 tokens of live.k3trace replayed", "measured (receipt r1)", "+75.0 %",
            "(now measured",
        )  # fmt: skip

    drive(body, home=home, live=station())


def test_all_are_compared_one_after_the_other(home: Path, asked: Asked) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        table = await with_choices(app, pilot)
        await pilot.press("a")
        await until(pilot, lambda: app.query_one(PlacementPane)._comparing.waiting == [])
        gains = {row.key: table.record(row)["gain"] for row in table.rows}
        assert gains == {"contiguous": 0.75, "hot-cold": 0.75, "optimised": None, "broken": None}
        await shows(app, pilot, "no trace", "refused")
        said = " ".join(text(app).split())
        assert f"no trace: no *.k3trace or *.trace in {home}, and the Station recorded none" in said
        assert "record one: k3ctl trace record live.k3trace" in said
        await pilot.press("down", "down", "enter")
        await shows(app, pilot, "there is none; record one")

    drive(body, home=home, live=station())


def test_what_was_compared_is_forgotten_with_its_epoch(home: Path, asked: Asked) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        pane = app.query_one(PlacementPane)
        await pilot.press("enter")
        await until(pilot, lambda: pane._comparing.compared)
        pane._comparing.epoch = 6
        pane.show(app.snapshot)
        assert not pane._comparing.compared

    drive(body, home=home, live=station())


def test_a_dry_run_says_all_and_does_nothing(home: Path, asked: Asked) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await pilot.press("d")
        await shows(app, pilot, "dry run: contiguous", "nothing is done", "531 copies, 7.1 MiB")
        assert [body["dry_run"] for _, body in asked.asked] == [True]
        assert not isinstance(app.screen, ConfirmDialog)

    drive(body, home=home, live=station())


def test_a_swap_shows_its_line_and_is_done_only_when_confirmed(home: Path, asked: Asked) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await pilot.press("S")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await until(pilot, lambda: f"--if-token {TOKEN}" in dialog_text(app))
        said = dialog_text(app)
        assert f"$ k3ctl placement swap contiguous --if-token {TOKEN} --detach" in said
        assert "531 copies, 7.1 MiB, in 1 wave to epoch 8" in said
        assert app.focused is not None
        assert app.focused.id == "deed-cancel"
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmDialog))
        assert len(asked.asked) == 1
        await pilot.press("S")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("right", "enter")
        await until(pilot, lambda: len(asked.asked) == 3)
        verb, sent = asked.asked[-1]
        assert verb == "swap"
        assert sent["if_token"] == TOKEN
        assert "dry_run" not in sent
        await shows(app, pilot, "swap cc to contiguous begins")
        await opened(app, pilot, "overview", "1")
        asked.ended.set()
        await shows(app, pilot, "swap cc done after 1.7 s")
        assert "begins" not in text(app)

    drive(body, home=home, live=station())


def test_a_home_that_is_not_the_default_is_in_the_line(
    home: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K3_HOME", "/elsewhere")

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await pilot.press("S")
        await until(pilot, lambda: "--home" in dialog_text(app))

    drive(body, home=home, live=station())


def test_rolling_back_and_aborting(home: Path, asked: Asked) -> None:
    source_frame_has_no_swap = station()

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await pilot.press("A")
        await shows(app, pilot, "no swap is under way")
        await pilot.press("R")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await until(pilot, lambda: "k3ctl placement rollback --if-token" in dialog_text(app))
        await pilot.press("right", "enter")
        await until(pilot, lambda: len(asked.asked) == 2)
        assert [verb for verb, _ in asked.asked] == ["rollback", "rollback"]
        assert asked.asked[1][1]["if_token"] == TOKEN
        asked.ended.set()
        await shows(app, pilot, "swap cc done after")

    drive(body, home=home, live=source_frame_has_no_swap)


def test_a_swap_under_way_shows_how_far_it_is_and_can_be_aborted(
    home: Path, asked: Asked, swapping: Any
) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await shows(app, pilot, "staging, wave 1 of 2", "3.3 MiB of 6.7 MiB", "it pauses, hops")
        await pilot.press("A")
        await until(pilot, lambda: "$ k3ctl placement abort" in dialog_text(app))
        await pilot.press("right", "enter")
        await shows(app, pilot, "swap bb cancelled")

    drive(body, home=home, live=station(), source=swapping)


@pytest.fixture
def swapping() -> Any:
    """A source whose frame has a swap."""
    return StillSource(msgspec.structs.replace(SimulatedPod().frame(200), swap=SWAP))


def test_what_the_station_refuses_is_said(home: Path, asked: Asked) -> None:
    asked.error = K3Error("another swap is under way", hint="see: k3ctl placement status")

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await pilot.press("S")
        await shows(app, pilot, "another swap is under way")
        assert not isinstance(app.screen, ConfirmDialog)

    drive(body, home=home, live=station())


def test_nothing_to_move_is_said_instead_of_asked(home: Path, asked: Asked) -> None:
    asked.plan = {**PLAN, "copies": 0, "waves": []}

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await pilot.press("S")
        await shows(app, pilot, "places experts so already")

    drive(body, home=home, live=station())


def test_read_only_has_no_keys_that_change(home: Path, asked: Asked) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_choices(app, pilot)
        await pilot.press("S", "R", "A")
        assert asked.asked == []
        assert "roll back" not in text(app)
        await pilot.press("down", "enter")
        await shows(app, pilot, "hot-cold beside epoch 7", "the console is read-only")
        await pilot.press("d")
        await shows(app, pilot, "read-only console keeps no map")

    drive(body, home=home, live=station(), guard=WriteGuard(home, read_only=True))


def test_a_hung_or_absent_station_blocks_nothing(home: Path, asked: Asked) -> None:
    hung = station()
    hung.hold()

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await opened(app, pilot, "placement", "3")
        await shows(app, pilot, "in force", "epoch 7", "contiguous")
        hung.error = NodeLost("station", "station cannot be reached")
        hung.release()
        await pilot.press("enter")
        await shows(app, pilot, "contiguous beside epoch 7", "of the replayed trace (modelled)")

    drive(body, home=home, live=hung)


def test_below_100_columns_one_thing_at_a_time(home: Path, asked: Asked) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        table = await with_choices(app, pilot)
        assert "Enter compares" not in text(app)
        await pilot.press("enter")
        await shows(app, pilot, "beside epoch 7")
        assert "CANDIDATE" not in text(app)
        await pilot.press("d")
        await shows(app, pilot, "dry run: contiguous")
        await pilot.press("escape")
        await shows(app, pilot, "beside epoch 7")
        await pilot.press("escape")
        await shows(app, pilot, "CANDIDATE")
        assert table.has_focus

    drive(body, home=home, live=station(), size=(80, 24))


@pytest.mark.parametrize("width", [50, 60, 80, 120])
@pytest.mark.parametrize("marks", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_progress_fits_and_is_words_too(width: int, marks: Any) -> None:
    lines = swap_lines(SWAP, marks, width)
    assert all(width_of(line) <= width for line in lines)
    said = " ".join(map(text_of, lines))
    assert "3.3 MiB of 6.7 MiB" in said
    assert "(modelled)" in said
    assert said.isascii() == marks.ascii


def test_the_sentence_of_a_plan_has_its_label() -> None:
    assert "(modelled)" in plan_sentence(PLAN)


def test_the_trace_that_is_gone_is_named(home: Path, asked: Asked) -> None:
    document = {"path": "/elsewhere/live.k3trace"}

    class Recorded(FakeStation):
        def trace(self) -> dict[str, Any]:
            return document

    found = placement_comparing.outcome(home, "optimised", Recorded(), keep=False)
    assert found.compared is None
    assert found.no_trace is not None
    assert "its last one, /elsewhere/live.k3trace, is gone" in found.no_trace


def test_a_replay_says_why_nothing_can_be_planned(home: Path, asked: Asked) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await opened(app, pilot, "placement", "3")
        await pilot.press("d")
        await shows(app, pilot, "this is a replay")
        assert asked.asked == []

    drive(body, home=home, source=SimulatedRecording(SimulatedPod(), 60))
