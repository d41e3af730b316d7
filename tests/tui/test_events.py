"""The journal, and the events pane: merged by time, followed, narrowed, opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from k3ctl.client.journal import Entry, Journal, severity_of
from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.screens.events import EventsPane
from k3ctl.tui.widgets.log_view import MOST, LogView
from k3d.store.run_file import log_path
from k3d.store.state import StateStore
from tests.tui.driven import drive, opened, until
from tests.tui.screen_text import settled
from tests.tui.shown import shows, text
from tests.tui.simulated_pod import BEGIN_MS, SimulatedPod, SimulatedRecording

BEGIN_S = BEGIN_MS / 1000


def log(home: Path, node: str, at_s: float, message: str, level: str = "info", **more: Any) -> None:
    """One more line in a node's log."""
    line = {"ts": at_s, "level": level, "node": node, "message": message, **more}
    with log_path(home, node).open("a") as file:
        file.write(json.dumps(line) + "\n")


def happen(home: Path, at_s: float, message: str, **detail: Any) -> None:
    """One more event, at a time of its own."""
    with (
        StateStore.open_as_writer(home, holder="test") as store,
        store.transaction() as connection,
    ):
        connection.execute(
            "INSERT INTO event (ts_ms, node, kind, message, detail) VALUES (?, ?, ?, ?, ?)",
            (round(at_s * 1000), None, "swap", message, json.dumps(detail) if detail else None),
        )


# The journal


def test_events_and_logs_are_in_one_order_of_time(home: Path) -> None:
    log(home, "station", BEGIN_S + 1, "first")
    log(home, "spark-1", BEGIN_S + 3, "third")
    happen(home, BEGIN_S + 2, "second", intent="abc")
    journal = Journal(home)
    entries = journal.read()
    assert [entry.message for entry in entries] == ["first", "second", "third"]
    assert [entry.source for entry in entries] == ["log", "event", "log"]
    assert entries[1].fields == {"intent": "abc"}
    assert entries[1].node == "pod"
    assert journal.read() == []


def test_only_what_is_new_is_read_again_and_numbers_go_on(home: Path) -> None:
    log(home, "station", BEGIN_S, "one")
    happen(home, BEGIN_S, "two")
    journal = Journal(home)
    first = journal.read()
    log(home, "spark-9", BEGIN_S + 9, "a log that was not there")
    happen(home, BEGIN_S + 8, "three")
    second = journal.read()
    assert [entry.message for entry in second] == ["three", "a log that was not there"]
    assert [entry.number for entry in first + second] == [1, 2, 3, 4]


def test_a_home_without_anything_has_nothing_to_tell(tmp_path: Path) -> None:
    assert Journal(tmp_path).read() == []


def test_an_alert_is_an_error_and_a_word_nobody_knows_the_worst(home: Path) -> None:
    happen(home, BEGIN_S, "hot", severity="alert")
    (entry,) = Journal(home).read()
    assert entry.level == "error"
    assert severity_of("debug") < severity_of("warning") < severity_of("error")
    assert severity_of("shouting") > severity_of("critical")


def test_a_whole_entry_has_every_field_on_lines_of_its_own() -> None:
    entry = Entry(1, BEGIN_S, "log", "error", "station", "", "it broke",
                  {"trace": "line 1\nline 2", "count": 3})  # fmt: skip
    lines = entry.lines()
    assert lines[0] == "it broke"
    assert lines[lines.index("trace:") :][:3] == ["trace:", "  line 1", "  line 2"]
    assert "count: 3" in lines
    assert "node: station" in lines


# The pane


async def with_entries(app: ConsoleApp, pilot: Any, count: int) -> LogView:
    await opened(app, pilot, "events", "7")
    view = app.query_one(LogView)
    await until(pilot, lambda: len(view.entries) == count and view.has_focus)
    return view


def again(app: ConsoleApp) -> None:
    """As the next tick does."""
    app.query_one(EventsPane).show(app.snapshot)


def test_it_follows_what_comes_and_stays_where_it_was_moved_to(home: Path) -> None:
    for number in range(50):
        log(home, "station", BEGIN_S + number, f"line {number}")

    async def body(app: ConsoleApp, pilot: Any) -> None:
        view = await with_entries(app, pilot, 50)
        await shows(app, pilot, "line 49", "following")
        log(home, "station", BEGIN_S + 50, "line 50")
        again(app)
        await shows(app, pilot, "line 50")
        await pilot.press("up", "up")
        assert not view.following
        under = view.entry
        log(home, "station", BEGIN_S + 51, "line 51")
        again(app)
        await shows(app, pilot, "staying, 3 newer")
        assert view.entry is under
        await pilot.press("G")
        await shows(app, pilot, "line 51", "following")
        await pilot.press("f")
        await shows(app, pilot, "staying, 0 newer")
        await pilot.press("home")
        await shows(app, pilot, "line 0", "staying, 51 newer")

    drive(body, home=home)


def test_levels_sources_and_the_filter_narrow(home: Path) -> None:
    log(home, "station", BEGIN_S + 1, "all is well")
    log(home, "spark-1", BEGIN_S + 2, "a link is slow", "warning")
    log(home, "spark-2", BEGIN_S + 3, "a link broke", "error")
    happen(home, BEGIN_S + 4, "a swap begins")

    async def body(app: ConsoleApp, pilot: Any) -> None:
        view = await with_entries(app, pilot, 4)

        def kept() -> list[str]:
            return [entry.message for entry in view.entries]

        await pilot.press("v", "v")
        assert kept() == ["a link is slow", "a link broke"]
        await pilot.press("v")
        assert kept() == ["a link broke"]
        await pilot.press("v", "e")
        assert kept() == ["a swap begins"]
        await pilot.press("e")
        assert len(kept()) == 3
        await pilot.press("e", "slash", *"!link", "enter")
        await settled(pilot)
        assert kept() == ["all is well", "a swap begins"]
        await pilot.press("slash", *"spark-2", "enter")
        await settled(pilot)
        await pilot.press("escape")
        await settled(pilot)
        assert len(kept()) == 4

    drive(body, home=home)


def test_enter_shows_all_of_a_line_and_esc_returns(home: Path) -> None:
    log(home, "station", BEGIN_S, "it broke", "error", trace="Traceback:\n  deep inside")

    async def body(app: ConsoleApp, pilot: Any) -> None:
        view = await with_entries(app, pilot, 1)
        await pilot.press("enter")
        await shows(app, pilot, "trace:", "deep inside", "level: error")
        await pilot.press("escape")
        await until(pilot, lambda: view.has_focus)
        chosen = app.query_one(EventsPane).chosen()
        assert chosen is not None
        assert chosen.id == "it broke"
        assert chosen.record["fields"] == {"trace": "Traceback:\n  deep inside"}
        sheet = app.query_one(EventsPane).sheet()
        assert sheet is not None
        assert len(sheet.rows) == 1

    drive(body, home=home)


def test_a_line_of_a_terminals_commands_steers_nothing(home: Path) -> None:
    log(home, "station", BEGIN_S, "\x1b[2J\x07 gone\nforever")

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_entries(app, pilot, 1)
        assert "\x1b" not in text(app)
        assert "gone forever" in text(app)
        await pilot.press("enter")
        await shows(app, pilot, "source: log")
        assert "\x1b" not in text(app)

    drive(body, home=home)


def test_memory_is_bounded(home: Path) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        view = await with_entries(app, pilot, 0)
        for turn in range(3):
            view.extend(
                Entry(at, BEGIN_S + turn, "log", "info", "station", "", f"{turn}", {})
                for at in range(MOST // 2)
            )
        assert len(view.entries) == MOST
        assert {entry.message for entry in view.entries} == {"1", "2"}

    drive(body, home=home)


def test_a_replay_ends_at_its_moment(home: Path) -> None:
    for number in (0, 5, 20):
        log(home, "station", BEGIN_S + number, f"at {number}")
    pod = SimulatedPod()

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await opened(app, pilot, "events", "7")
        view = app.query_one(LogView)
        await until(pilot, lambda: [entry.message for entry in view.entries] == ["at 0", "at 5"])

    recording = SimulatedRecording(pod, seconds=30)
    drive(body, source=recording, home=home, start_ms=BEGIN_MS + 10_000)


@pytest.mark.parametrize("text_of_log", ["", "not JSON at all\n", '{"message": 3}\n', "\x00\n"])
def test_odd_logs_break_nothing(home: Path, text_of_log: str) -> None:
    log_path(home, "station").write_text(text_of_log)

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_entries(app, pilot, 1 if text_of_log else 0)

    drive(body, home=home, size=(60, 15))
