"""Progress: a bar on a terminal, a line now and then in a log, silence with -q."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from k3ctl.cli.output import Output
from k3ctl.cli.progress import EVERY_S, Progress


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "60")
    return Terminal()


def _work(output: Output, clock: Clock, steps: int = 100, step_s: float = 1.0) -> None:
    with Progress(output, clock=clock) as progress:
        for number in range(steps):
            progress(f"step {number}", number / steps)
            clock.now_s += step_s


def test_a_log_has_a_line_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    _work(Output(), clock)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "0 %, step 0"
    assert len(lines) == 100 / EVERY_S + 1
    assert lines[-2] == "90 %, step 90, about 10.0 s left"
    assert lines[-1] == "99 %, step 99", "the last state is told"
    assert not [line for line in lines if "\r" in line or "\x1b" in line]


def test_a_terminal_has_one_line_that_goes_away(clock: Clock, terminal: Terminal) -> None:
    with contextlib.redirect_stderr(terminal):
        _work(Output(), clock)
    text = terminal.getvalue()
    assert "\n" not in text
    drawn = text.split("\r")
    assert drawn[-1] == "\x1b[K"
    assert all(len(line.removesuffix("\x1b[K")) < 60 for line in drawn)
    assert "██████████·········· " in text
    assert "50 % step 50, about 50.0 s left" in text


def test_a_line_in_between_has_a_line_of_its_own(clock: Clock, terminal: Terminal) -> None:
    with contextlib.redirect_stderr(terminal), Progress(Output(), clock=clock) as progress:
        progress("working", 0.5)
        Output().note("a word")
    assert re.search(r"working\x1b\[K\r\x1b\[Ka word\n", terminal.getvalue())


def test_ascii(clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K3_ASCII", "1")
    with contextlib.redirect_stderr(terminal):
        _work(Output(), clock)
    assert terminal.getvalue().isascii()
    assert "##########.........." in terminal.getvalue()


def test_a_terminal_that_cannot_go_back_is_a_log(
    clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with contextlib.redirect_stderr(terminal):
        _work(Output(), clock)
    assert "\r" not in terminal.getvalue()
    assert len(terminal.getvalue().splitlines()) == 100 / EVERY_S + 1


def test_quiet(clock: Clock, terminal: Terminal) -> None:
    with contextlib.redirect_stderr(terminal):
        _work(Output(quiet=True), clock)
    assert terminal.getvalue() == ""


def test_without_a_part_there_is_no_bar_but_the_words(clock: Clock, terminal: Terminal) -> None:
    with contextlib.redirect_stderr(terminal), Progress(Output(), clock=clock) as progress:
        progress("a long sentence " * 10)
    assert terminal.getvalue().startswith("\ra long sentence a long")
    assert "…" in terminal.getvalue()


def test_another_phase_is_said_at_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output(), clock=clock) as progress:
        for phase in ("copy", "copy", "turn", "turn", "copy"):
            progress(f"it is {phase}", phase=phase)
            clock.now_s += 0.1
    assert capsys.readouterr().err.split("\n") == ["it is copy", "it is turn", "it is copy", ""]


def test_what_was_said_already_is_not_said_again(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    _work(Output(), clock, steps=1)
    assert capsys.readouterr().err == "0 %, step 0\n"


def test_the_same_state_again_is_not_said_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(Output(), clock=clock) as progress:
        progress("it is copy")
        progress("it is copy")
    assert capsys.readouterr().err == "it is copy\n"
