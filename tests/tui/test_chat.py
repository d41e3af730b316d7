"""The chat pane against a Station that speaks HTTP: streaming, stopping, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from textual import events
from textual.keys import key_to_character

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.ink import text_of, width_of
from k3ctl.tui.marks import UNICODE
from k3ctl.tui.screens.chat import ChatPane, Question
from k3ctl.tui.station_calls import StationCalls
from k3ctl.tui.transcript import Turn, wrapped
from k3ctl.tui.widgets.typed_line import TypedLine
from tests.ctl.fake_daemons import FakeDaemon, write_script
from tests.tui.driven import StillSource, drive, opened, until
from tests.tui.screen_text import screen_lines
from tests.tui.shown import shows, text
from tests.tui.simulated_pod import SimulatedPod, SimulatedRecording


@pytest.fixture
def station(home: Path) -> Iterator[FakeDaemon]:
    daemon = FakeDaemon(home, "station", "station")
    daemon.start()
    yield daemon
    daemon.stop()


def say(*texts: str, reasoning: str | None = None, gap_s: float = 0.0) -> dict[str, Any]:
    """A script of one answer."""
    events: list[dict[str, Any]] = []
    if reasoning is not None:
        events.append({"type": "token", "id": 0, "text": reasoning, "channel": "reasoning"})
    events += [{"type": "token", "id": 1 + at, "text": text} for at, text in enumerate(texts)]
    events.append({
        "type": "done", "finish_reason": "stop",
        "usage": {"prompt_tokens": 30, "completion_tokens": len(texts)},
        "timing": {"prompt_s": 0.5, "decode_s": 0.2, "tokens_per_s": 15.0},
        "cached_tokens": 16, "rounds": 2, "drafted": 3, "accepted": 2, "acceptance_length": 3.0,
    })  # fmt: skip
    return {"chat": events, "chat_gap_s": gap_s}


async def chatting(app: ConsoleApp, pilot: Any) -> ChatPane:
    await opened(app, pilot, "chat", "8")
    await until(pilot, lambda: isinstance(app.focused, Question))
    return app.query_one(ChatPane)


async def ask(pilot: Any, question: str) -> None:
    await pilot.press(*question, "enter")


def drive_chat(body: Any, home: Path, **settings: Any) -> None:
    drive(body, home=home, live=StationCalls(home), **settings)


def test_an_answer_streams_and_says_what_it_cost(home: Path, station: FakeDaemon) -> None:
    write_script(home, "station", **say("It lists ", "what is there.", reasoning="They ask of ls."))

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await ask(pilot, "what does ls do")
        await shows(
            app, pilot, "▌ what does ls do", "They ask of ls.", "It lists what is there.",
            "15.0 tokens/s, prompt of 30 tokens, 16 reused in 0.50 s", "acceptance length 3.00",
            "(measured)",
        )  # fmt: skip

    drive_chat(body, home)


def test_the_conversation_is_remembered_and_begun_afresh(home: Path, station: FakeDaemon) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await ask(pilot, "one")
        await shows(app, pilot, "tokens/s")
        await ask(pilot, "two")
        await until(pilot, lambda: text(app).count("tokens/s") == 2)
        roles = [message["role"] for message in station.requests[-1]["messages"]]
        assert roles == ["user", "assistant", "user"]
        await pilot.press("up", "up")
        assert app.query_one(Question).value == "one"
        await pilot.press("down", "down", "ctrl+n")
        await shows(app, pilot, "nothing was asked yet")
        await ask(pilot, "three")
        await shows(app, pilot, "tokens/s")
        assert [m["content"] for m in station.requests[-1]["messages"]] == ["three"]

    drive_chat(body, home)


def test_esc_stops_an_answer_and_keeps_what_came(home: Path, station: FakeDaemon) -> None:
    write_script(home, "station", **say(*(f"word{at} " for at in range(400)), gap_s=0.01))

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await ask(pilot, "go on and on")
        await shows(app, pilot, "answering", "word3", "tokens/s")
        await pilot.press("escape")
        await shows(app, pilot, "stopped after")
        cancelled = station.home / "fake-cancelled"
        await until(pilot, cancelled.exists)
        assert isinstance(app.focused, Question)
        write_script(home, "station", **say("Short."))
        await ask(pilot, "and now")
        await shows(app, pilot, "Short.")
        messages = station.requests[-1]["messages"]
        assert messages[1]["content"].startswith("word0 ")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.focused, Question))
        await opened(app, pilot, "nodes", "5")

    drive_chat(body, home)


def test_a_second_esc_leaves_the_line(home: Path, station: FakeDaemon) -> None:
    write_script(home, "station", **say(*(f"word{at} " for at in range(400)), gap_s=0.01))

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await ask(pilot, "go on and on")
        await shows(app, pilot, "answering")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.focused is app.query_one("#chat-scroll"))
        await shows(app, pilot, "stopped after")
        await opened(app, pilot, "nodes", "5")

    drive_chat(body, home)


@pytest.mark.parametrize("key", ["colon", "slash"])
def test_the_prompt_gives_the_focus_back_where_it_was(home: Path, key: str) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await pilot.press("escape", key)
        await until(pilot, lambda: app.focused is app.query_one("#prompt-field"))
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is app.query_one("#chat-scroll"))
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.focused, Question))
        await app.run_action("prompt('/')")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.focused, Question))

    drive_chat(body, home)


def test_the_screen_goes_on_while_the_first_token_is_awaited(
    home: Path, station: FakeDaemon
) -> None:
    write_script(home, "station", **say(*(["slow "] * 3), gap_s=2.0))

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await ask(pilot, "hello")
        await shows(app, pilot, "slow", "answering")
        await pilot.press("escape", "escape")
        await opened(app, pilot, "nodes", "5")
        await shows(app, pilot, "spark-1")

    drive_chat(body, home)


def test_an_error_ends_its_answer_and_not_the_conversation(home: Path, station: FakeDaemon) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        events = [
            {"type": "token", "id": 1, "text": "half"},
            {"type": "error", "code": 3, "message": "spark-1 was lost", "node": "spark-1"},
        ]
        write_script(home, "station", chat=events)
        await ask(pilot, "one")
        await shows(app, pilot, "spark-1 was lost")
        write_script(home, "station", **say("Back."))
        await ask(pilot, "two")
        await shows(app, pilot, "Back.")
        assert [m["content"] for m in station.requests[-1]["messages"]] == ["two"]

    drive_chat(body, home)


def test_without_a_station_it_is_said(home: Path) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await ask(pilot, "anybody")
        await shows(app, pilot, "no Station runs in", "k3ctl pod up")

    drive_chat(body, home)


def test_keys_typed_into_the_line_are_no_keys_of_the_console(
    home: Path, station: FakeDaemon
) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await pilot.press("1", "q", "p", "slash", "colon", "question_mark")
        assert app.query_one(Question).value == "1qp/:?"
        assert app.pane_name == "chat"

    drive_chat(body, home)


def test_the_foot_offers_no_key_that_the_line_takes(home: Path, station: FakeDaemon) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        foot = " ".join(screen_lines(app)[-1].split())
        assert foot == "enter ask esc stop, or leave the line ^n new conversation ^c quit"
        await pilot.press("escape")
        await shows(app, pilot, "/ filter", ": go to", "? keys", "q quit")

    drive_chat(body, home)


@pytest.mark.parametrize("key", ["slash", "at", "backslash", "plus", "minus", "underscore", "a"])
def test_a_line_takes_every_key_that_writes(key: str) -> None:
    assert TypedLine().check_consume_key(key, key_to_character(key))
    for other in ("tab", "escape", "enter", "ctrl+n", "f1", "ctrl+slash"):
        assert not TypedLine().check_consume_key(other, key_to_character(other))


def test_several_pasted_lines_become_one(home: Path) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        question = app.query_one(Question)
        question.post_message(events.Paste("one\ntwo\r\nthree"))
        await until(pilot, lambda: question.value == "one two three")

    drive_chat(body, home)


# Lines


@pytest.mark.parametrize(
    "given",
    ["", "plain words in a row", "  indented\n    more", "x" * 500, "长" * 60 + " and latin",
     "a" * 19 + " " + "b" * 19 + " " + "长" * 5, "tab\there", "one\n\n\ntwo"],
)  # fmt: skip
def test_wrapping_loses_nothing_and_fits(given: str) -> None:
    for width in (2, 7, 20, 80):
        lines = wrapped(given, width)
        assert all(cell_len(line) <= width for line in lines)
        assert "".join("".join(lines).split()) == "".join(given.split())


def test_indents_and_blank_lines_are_kept() -> None:
    assert wrapped("def f():\n    return 1\n\nend", 40) == ["def f():", "    return 1", "", "end"]


def test_an_ended_turn_is_laid_out_once_for_a_width() -> None:
    turn = Turn("question", text="answer")
    first = turn.lines(40, UNICODE)
    turn.text, turn.ended = "answer and more", True
    second = turn.lines(40, UNICODE)
    assert first != second
    assert turn.lines(40, UNICODE) is second
    assert all(width_of(line) <= 12 for line in turn.lines(12, UNICODE))
    assert "answer and" in " ".join(map(text_of, turn.lines(12, UNICODE)))


def test_a_model_cannot_steer_the_terminal() -> None:
    turn = Turn("q", text="\x1b[2J\x1b]52;c;aGk=\x07", ended=True)
    assert not any("\x1b" in text_of(line) or "\x07" in text_of(line)
                   for line in turn.lines(60, UNICODE))  # fmt: skip


def test_in_a_replay_it_says_why_nobody_can_be_asked_and_how_to_leave(home: Path) -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await until(pilot, lambda: app.snapshot.number > 0)
        await opened(app, pilot, "chat", "8")
        said = " ".join(text(app).split())
        assert "this is a replay: what was recorded is shown" in said
        assert "leave it with q, then open the console on the running pod: k3ctl tui" in said
        assert not app.query_one(Question).display
        assert "ask" not in screen_lines(app)[-1]  # type: ignore[arg-type]
        await pilot.press("i")
        await opened(app, pilot, "nodes", "5")  # its keys are the console's

    drive(body, source=SimulatedRecording(SimulatedPod(), 60), home=home, size=(60, 15))


def test_lanes_are_counted_as_the_lanes_pane_counts_them(home: Path, station: FakeDaemon) -> None:
    frame = SimulatedPod(sparks=1, lanes=20).frame(200)
    source = StillSource(msgspec.structs.replace(frame, running=1, waiting=9))

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await chatting(app, pilot)
        await shows(app, pilot, "16 of 16 lanes, 4 waiting")

    drive(body, source=source, home=home, live=StationCalls(home))
