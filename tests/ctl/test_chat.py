"""k3ctl chat."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3ctl.cli.chat_session import GREETING
from k3d.errors import ExitCode
from tests.ctl.conftest import K3CTL, K3ctl
from tests.ctl.fake_daemons import FakeDaemon, write_script

DONE = {"type": "done", "finish_reason": "stop", "usage": {}, "timing": {}}
LOST = {
    "type": "error", "code": 3, "name": "UNREACHABLE", "node": "spark-2",
    "message": "spark-2 was lost", "hint": "ask again", "retryable": True,
}  # fmt: skip


def test_one_question(k3ctl: K3ctl, station: FakeDaemon) -> None:
    ran = k3ctl("chat", "What does ls do?")
    assert (ran.code, ran.out) == (0, "It lists é.\n")
    assert station.requests == [{"messages": [{"role": "user", "content": "What does ls do?"}]}]


def test_settings_are_sent_and_only_those_given(k3ctl: K3ctl, station: FakeDaemon) -> None:
    k3ctl(
        "chat", "hi", "--max-tokens", "9", "--temperature", "0.5", "--top-p", "0.9", "--top-k",
        "40", "--seed", "7", "--thinking", "--system", "Be brief.",
    )  # fmt: skip
    assert station.requests[0] == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ],
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 7,
        "thinking": True,
    }  # fmt: skip
    k3ctl("chat", "--raw", "Once upon", "--no-thinking")
    assert station.requests[1] == {"prompt": "Once upon", "thinking": False}


def test_json_is_one_document(k3ctl: K3ctl, station: FakeDaemon) -> None:
    document = k3ctl("chat", "hi", "--json").document
    assert document["schema"] == "k3ctl.chat/1"
    assert document["text"] == "It lists é."
    assert document["ids"] == [0, 1, 2]
    assert document["finish_reason"] == "stop"
    assert document["usage"] == {"prompt_tokens": 7, "completion_tokens": 3}
    assert document["timing"]["tokens_per_s"] == 15.0


def test_stats_are_words_on_stderr(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    ran = k3ctl("chat", "hi", "--stats")
    assert ran.out == "It lists é.\n"
    assert ran.err == (
        "15.0 tokens/s, prompt of 7 tokens, 4 reused in 0.10 s, acceptance length 3.00, rounds: 1 "
        "(measured)\n"
    )
    document = k3ctl("chat", "hi", "--json").document
    assert (document["acceptance_length"], document["provenance"]) == (3.0, "measured")
    write_script(home, "station", chat=[DONE])
    assert k3ctl("chat", "hi", "--stats").err == "no figures came (measured)\n"


def test_synthetic_answers_are_called_so(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    write_script(home, "station", chat=[{**DONE, "synthetic_acceptance": 3.5}])
    assert "no model wrote this" in k3ctl("chat", "hi").err
    assert "SYNTHETIC ACCEPTANCE of 3.5" in k3ctl("chat", "hi", "--stats").err
    assert k3ctl("chat", "hi", "--json").document["synthetic_acceptance"] == 3.5


@pytest.mark.parametrize(("asked", "sent"), [("1", 1), ("8", 8), ("auto", None)])
def test_draft_rows(k3ctl: K3ctl, station: FakeDaemon, asked: str, sent: int | None) -> None:
    k3ctl("chat", "hi", "--draft-rows", asked)
    assert station.requests[0].get("draft_rows") == sent


def test_jsonl_is_one_event_a_line(k3ctl: K3ctl, station: FakeDaemon) -> None:
    events = [json.loads(line) for line in k3ctl("chat", "hi", "--jsonl").out.splitlines()]
    assert [event["type"] for event in events] == ["token"] * 3 + ["done"]


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_a_question_on_stdin(
    k3ctl_process: K3ctl, station: FakeDaemon, arguments: list[str]
) -> None:
    read, write = os.pipe()
    os.write(write, "Was tut »ls«?\n".encode())
    os.close(write)
    ran = k3ctl_process("chat", *arguments, stdin=read)
    os.close(read)
    assert ran.code == 0
    assert station.requests[0]["messages"][0]["content"] == "Was tut »ls«?\n"


def test_tokens_are_shown_as_they_come(home: Path, station: FakeDaemon) -> None:
    events = [{"type": "token", "id": 1, "text": "first "}, {"type": "token", "id": 2, "text": "x"}]
    write_script(home, "station", chat=[*events * 30, DONE], chat_gap_s=0.2)
    with subprocess.Popen([*K3CTL, "chat", "hi"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert os.read(child.stdout.fileno(), 6) == b"first "
        assert child.poll() is None
        child.terminate()


def test_a_lost_node_ends_the_answer_with_its_name(
    k3ctl: K3ctl, home: Path, station: FakeDaemon
) -> None:
    write_script(home, "station", chat=[{"type": "token", "id": 1, "text": "It "}, LOST])
    ran = k3ctl("chat", "hi")
    assert ran.code == ExitCode.UNREACHABLE
    assert ran.out == "It \n"
    assert "spark-2 was lost" in ran.err
    as_json = k3ctl("chat", "hi", "--json")
    assert as_json.out == ""
    assert as_json.error["node"] == "spark-2"
    assert as_json.error["retryable"] is True


def test_a_cancelled_answer_is_an_error(k3ctl: K3ctl, home: Path, station: FakeDaemon) -> None:
    ended = {**DONE, "finish_reason": "cancelled"}
    write_script(home, "station", chat=[{"type": "token", "id": 1, "text": "It "}, ended])
    ran = k3ctl("chat", "hi")
    assert (ran.code, ran.out) == (ExitCode.FAILED, "It \n")
    assert ran.err.startswith("k3ctl: the request was cancelled")
    as_json = k3ctl("chat", "hi", "--json")
    assert (as_json.code, as_json.out) == (ExitCode.FAILED, "")
    assert as_json.error["message"].startswith("the request was cancelled")
    as_lines = k3ctl("chat", "hi", "--jsonl")
    assert json.loads(as_lines.out.splitlines()[-1]) == ended
    assert (as_lines.code, as_lines.error["code"]) == (ExitCode.FAILED, ExitCode.FAILED)


def test_an_answer_that_breaks_off_is_an_error(
    k3ctl: K3ctl, home: Path, station: FakeDaemon
) -> None:
    write_script(home, "station", chat=[{"type": "token", "id": 1, "text": "It"}])
    ran = k3ctl("chat", "hi")
    assert ran.code == ExitCode.UNREACHABLE
    assert "ended the answer midway" in ran.err


def test_an_answer_that_stops_coming_times_out(
    k3ctl: K3ctl, home: Path, station: FakeDaemon
) -> None:
    write_script(home, "station", chat=[{"type": "token", "id": 1, "text": "It"}] * 2,
                 chat_gap_s=3)  # fmt: skip
    ran = k3ctl("chat", "hi", "--timeout", "0.3")
    assert ran.code == ExitCode.TIMEOUT


def test_an_answer_cut_short_says_so(k3ctl: K3ctl, home: Path, station: FakeDaemon) -> None:
    write_script(home, "station", chat=[{**DONE, "finish_reason": "length"}])
    assert "cut at --max-tokens" in k3ctl("chat", "hi").err
    assert k3ctl("chat", "hi", "-q").err == ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["", ], ExitCode.USAGE),
        (["   "], ExitCode.USAGE),
        (["hi", "--raw", "--system", "x"], ExitCode.USAGE),
        (["hi", "--top-p", "0"], ExitCode.USAGE),
        (["hi", "--draft-rows", "0"], ExitCode.USAGE),
        (["hi", "--draft-rows", "many"], ExitCode.USAGE),
        (["hi", "--draft-rows", "9" * 5000], ExitCode.USAGE),
        (["hi", "--max-tokens", "0"], ExitCode.USAGE),
    ],
)  # fmt: skip
def test_questions_that_cannot_be_asked(
    k3ctl: K3ctl, station: FakeDaemon, arguments: list[str], code: ExitCode
) -> None:
    assert k3ctl("chat", *arguments).code == code
    assert station.requests == []


def test_no_station_is_unreachable(k3ctl: K3ctl) -> None:
    ran = k3ctl("chat", "hi")
    assert ran.code == ExitCode.UNREACHABLE
    assert "k3ctl pod up" in ran.err


class Terminal:
    """The other end of a terminal: what was typed and what is shown."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.shown = b""

    def wait_for(self, wanted: str, timeout_s: float = 20.0) -> None:
        """Read up to and with `wanted`; what comes after is kept for the next call."""
        deadline = time.monotonic() + timeout_s
        while wanted.encode() not in self.shown:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self.descriptor], [], [], left)[0]:
                raise AssertionError(f"{wanted!r} did not come; shown {self.shown!r}")
            self.shown += os.read(self.descriptor, 4096)
        self.shown = self.shown.partition(wanted.encode())[2]

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())


@contextlib.contextmanager
def conversation(*arguments: str) -> Iterator[Terminal]:
    """`k3ctl chat` on a terminal of 80 columns; it has ended well by the end of the block."""
    controller, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen(
        [*K3CTL, "chat", *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "TERM": "dumb"},
    ) as child:
        os.close(inner)
        try:
            yield Terminal(controller)
            child.wait(timeout=20)
        finally:
            child.kill()
    os.close(controller)
    assert child.returncode == 0


def test_a_conversation_on_a_terminal(home: Path, station: FakeDaemon) -> None:
    with conversation("--seed", "1") as terminal:
        terminal.wait_for("/help lists commands\r\n")
        for question in ("What does ls do?", "And cp?"):
            terminal.wait_for("> ")
            terminal.type(f"{question}\n")
            terminal.wait_for("lists é.")
        terminal.wait_for("> ")
        terminal.type("\x04")
    roles = [message["role"] for message in station.requests[1]["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert station.requests[1]["seed"] == 1
    assert "What does ls do?" in (home / "run" / "chat_history").read_text()


def test_the_greeting_fits_80_columns() -> None:
    assert len(GREETING) <= 80


def test_words_after_a_slash_are_commands(station: FakeDaemon) -> None:
    with conversation() as terminal:
        for typed, told in (
            ("What does ls do?", "lists é."),
            ("/help", "/quit  end, as ctrl-d does"),
            ("/nwe", "there is no command /nwe; /help lists them"),
            ("/new", "a new conversation begins"),
            ("/etc/passwd is what?", "lists é."),
        ):
            terminal.wait_for("> ")
            terminal.type(f"{typed}\n")
            terminal.wait_for(told)
        terminal.wait_for("> ")
        terminal.type("/quit\n")
    asked = [[each["content"] for each in one["messages"]] for one in station.requests]
    assert asked == [["What does ls do?"], ["/etc/passwd is what?"]]
