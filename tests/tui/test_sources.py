"""Sources that hang, fail, come back, or were recorded."""

from __future__ import annotations

import threading

import msgspec
import pytest

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.deck import parse_moment
from k3ctl.tui.feed import Feed, Fetched
from k3d.errors import ConfigError, NodeLost
from tests.tui.driven import DEADLINE_S, drive, opened, still, until
from tests.tui.screen_text import screen_lines, settled
from tests.tui.simulated_pod import (
    BEGIN_MS,
    SimulatedPod,
    SimulatedRecording,
    SimulatedSource,
)

POD = SimulatedPod(sparks=40, lanes=4)


def text_of(app: ConsoleApp) -> str:
    return "\n".join(screen_lines(app))


def test_a_source_that_hangs_is_late_and_keys_still_work() -> None:
    source = still(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        source.hold()
        await until(pilot, lambda: app.snapshot.source == "late")
        await opened(app, pilot, "nodes", "5")
        before = text_of(app)
        await pilot.press("down")
        await settled(pilot)
        assert text_of(app) != before
        assert "late, " in text_of(app)
        assert "has not answered" in text_of(app)
        asked = source.asked
        await until(pilot, lambda: app.snapshot.freshness == "lost")
        assert source.asked == asked  # one question is open, no second one was asked
        await until(pilot, lambda: all(row.old for row in app.pane.table().rows))  # type: ignore[union-attr]
        source.release()
        await until(pilot, lambda: app.snapshot.source == "live")
        await settled(pilot)
        assert not app.pane.table().rows[1].old  # type: ignore[union-attr]

    drive(body, pod=POD, source=source, interval_s=0.25)


def test_a_console_that_is_left_does_not_wait_for_a_hung_source() -> None:
    source = still(POD)
    source.hold()

    async def body(app: ConsoleApp, pilot) -> None:
        await until(pilot, lambda: app._feed.open_s is not None)
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)
        assert app._feed.open_s is not None

    drive(body, pod=POD, source=source)


def test_a_daemon_that_restarts_is_found_again() -> None:
    source = SimulatedSource(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        await until(pilot, lambda: app.snapshot.number >= 2)
        kept = app.snapshot.frame
        source.error = NodeLost("station", "station cannot be reached", hint="see: k3ctl health")
        await until(pilot, lambda: app.snapshot.source == "lost")
        await until(pilot, lambda: app.snapshot.age_s > 0)
        await settled(pilot)
        assert app.snapshot.frame is not None
        assert app.snapshot.frame.sequence >= kept.sequence  # type: ignore[union-attr]
        assert "station cannot be reached" in text_of(app)
        assert "k3ctl health" in text_of(app)
        source.error = None
        await until(pilot, lambda: app.snapshot.source == "live")
        await settled(pilot)
        assert "cannot be reached" not in "\n".join(screen_lines(app)[:3])

    drive(body, pod=POD, source=source, interval_s=0.25)


def test_no_pod_at_all_is_a_sentence() -> None:
    source = still(POD)
    source.error = NodeLost("station", "no Station runs in /somewhere", hint="k3ctl pod up")

    async def body(app: ConsoleApp, pilot) -> None:
        await until(pilot, lambda: app.snapshot.source == "lost")
        await settled(pilot)
        assert "no answer" in text_of(app)
        assert "no Station runs in /somewhere" in text_of(app)
        assert "waiting for the first frame" in text_of(app)
        await opened(app, pilot, "nodes", "5")
        assert "no node yet" in text_of(app)

    drive(body, pod=POD, source=source)


def test_a_dead_node_dims_and_then_gets_a_question_mark() -> None:
    source = still(POD)

    def aged(age_s: float) -> None:
        nodes = list(POD.frame(200).nodes)
        nodes[1] = msgspec.structs.replace(nodes[1], progress_age_s=age_s)
        source.frame = msgspec.structs.replace(
            POD.frame(200), nodes=tuple(nodes), sequence=source.frame.sequence + 1
        )

    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        for age_s, old, mark in ((0.3, False, False), (2.5, True, False), (6.0, True, True)):
            aged(age_s)
            app._pace.interval_s = app._pace.asked_s
            number = app.snapshot.number
            app._feed.tick()
            await until(pilot, lambda number=number: app.snapshot.number > number)
            await settled(pilot)
            row = next(row for row in app.pane.table().rows if row.key == "spark-1")  # type: ignore[union-attr]
            assert row.old == old
            shown = next(line for line in screen_lines(app) if "spark-1 " in line)
            assert ("healthy ?" in shown) == mark

    drive(body, pod=POD, source=source, interval_s=1.0, size=(120, 50))


def test_ticks_that_come_too_late_are_dropped() -> None:
    source = still(POD)
    source.hold()
    answers: list[Fetched] = []
    came = threading.Event()

    def post(message: object) -> None:
        assert isinstance(message, Fetched)
        answers.append(message)
        came.set()

    feed = Feed(source, post)
    feed.start()
    assert feed.tick()
    assert not any(feed.tick() for _ in range(100))
    source.release()
    assert came.wait(DEADLINE_S)
    feed.close()
    assert source.asked == 1
    assert answers[0].frame == source.frame


def test_an_answer_replaces_one_that_was_not_drawn() -> None:
    old, new = Fetched(POD.frame(1)), Fetched(POD.frame(2))
    assert old.can_replace(new)
    backlog = Fetched(POD.frame(3), backlog=(POD.frame(2),))
    assert new.can_replace(backlog)
    assert not backlog.can_replace(new)


def test_replay_steps_seeks_and_plays() -> None:
    recording = SimulatedRecording(POD, 300)

    def at(app: ConsoleApp) -> int:
        return -1 if app.snapshot.frame is None else app.snapshot.frame.sequence

    async def body(app: ConsoleApp, pilot) -> None:
        await until(pilot, lambda: at(app) == 299)  # the end, where nothing else is asked for
        await settled(pilot)
        assert "REPLAY" in text_of(app)
        assert "2026-11-30 00:58:19 UTC" in text_of(app)
        assert len(app.trail.pod("power_w")) > 100
        for key, number in (
            ("left_square_bracket", 298), ("left_square_bracket", 297),
            ("right_square_bracket", 298), ("left_curly_bracket", 238),
            ("right_curly_bracket", 298), ("right_curly_bracket", 299),
        ):  # fmt: skip
            await pilot.press(key)
            await until(pilot, lambda number=number: at(app) == number)
        await pilot.press("at")
        app.query_one("#prompt-field").value = "00:55:00"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: at(app) == 100)
        await pilot.press("space")
        await until(pilot, lambda: at(app) > 102)
        assert "playing" in text_of(app)
        await pilot.press("space")
        assert app.live is None
        assert not app.may_write
        await opened(app, pilot, "lanes", "6")
        assert "x" not in app.screen.active_bindings
        assert "p" not in [key for key, each in app.screen.active_bindings.items() if each.enabled]

    drive(body, pod=POD, source=recording, interval_s=0.25)


def test_replay_keys_are_not_there_live() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        assert not {"left_square_bracket", "at", "space"} & set(app.screen.active_bindings)

    drive(body, pod=POD)


def test_an_empty_recording_is_a_sentence() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await until(pilot, lambda: "nothing was recorded" in text_of(app))

    drive(body, pod=POD, source=SimulatedRecording(POD, 0))


def test_charts_begin_with_what_was_recorded() -> None:
    import time

    source = still(POD)
    now = round((time.time() * 1000 - BEGIN_MS) / 1000)

    class Lately(SimulatedRecording):
        def between(self, first_ms: int, last_ms: int, most: int, /):
            return [POD.frame(number) for number in range(now - 60, now)]

    source.frame = POD.frame(now)

    async def body(app: ConsoleApp, pilot) -> None:
        await until(pilot, lambda: len(app.trail.pod("power_w")) > 50)

    drive(body, pod=POD, source=source, behind=0, history=lambda: Lately(POD, now))


@pytest.mark.parametrize(
    ("text", "second"),
    [("03:12", 3 * 3600 + 12 * 60), ("03:12:09", 3 * 3600 + 12 * 60 + 9), ("-10m", -600),
     ("+90s", 90), ("1970-01-02 00:00:01", 86_401)],
)  # fmt: skip
def test_moments(text: str, second: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert parse_moment(text, 0) // 1000 == second


@pytest.mark.parametrize("text", ["", "25:00", "3", "soon", "12:61", "-5", "9999999-01-01"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time"):
        parse_moment(text, 0)
