"""k3ctl tui where there can be no console, and k3ctl lanes."""

from __future__ import annotations

import importlib.util
import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from k3ctl.cli import tui as verb
from k3d.errors import ExitCode
from tests.ctl.conftest import K3CTL, K3ctl

DEADLINE_S = 60.0


def test_without_a_terminal_it_is_refused_with_the_way_out(k3ctl_process: K3ctl) -> None:
    ran = k3ctl_process("tui")
    assert ran.code == ExitCode.REFUSED
    assert ran.out == ""
    assert "the console needs a terminal" in ran.err
    assert "k3ctl top --once" in ran.err


def test_without_a_terminal_no_verb_is_help(k3ctl_process: K3ctl) -> None:
    ran = k3ctl_process()
    assert ran.code == ExitCode.OK
    assert ran.out.startswith("Usage: k3ctl")
    assert ran.err == ""


def test_without_textual_one_sentence_says_what_to_install(
    k3ctl: K3ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "stdin_is_terminal", lambda: True)
    monkeypatch.setattr(verb, "stdout_is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "textual" else found(name)
    )
    ran = k3ctl("tui")
    assert ran.code == ExitCode.FAILED
    assert "pip install 'k3pod[tui]'" in ran.err


@pytest.mark.parametrize("interval", ["0.1", "nan", "0"])
def test_an_interval_below_the_floor_is_a_usage_error(k3ctl: K3ctl, interval: str) -> None:
    assert k3ctl("tui", "--interval", interval).code == ExitCode.USAGE


def test_a_dumb_terminal_is_refused(k3ctl: K3ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "stdin_is_terminal", lambda: True)
    monkeypatch.setattr(verb, "stdout_is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    ran = k3ctl("tui")
    assert ran.code == ExitCode.REFUSED
    assert "TERM is dumb" in ran.err


@pytest.mark.parametrize("arguments", [[], ["tui"], ["tui", "--no-mouse", "--theme", "mono"]])
@pytest.mark.parametrize("stderr_elsewhere", [False, True])
def test_on_a_terminal_it_opens_without_a_pod_and_q_leaves(
    home: Path, arguments: list[str], stderr_elsewhere: bool
) -> None:
    """Also where stderr goes to a file: the drawing is on the terminal all the same."""
    near, far = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "LINES": "24", "COLUMNS": "80"}
    with Path(os.devnull).open("w") as elsewhere:
        child = subprocess.Popen(
            [*K3CTL, *arguments], stdin=far, stdout=far,
            stderr=elsewhere if stderr_elsewhere else far, env=environment,
        )  # fmt: skip
    os.close(far)
    try:
        _read_until(near, b"no Station runs in")
        os.write(near, b"q")
        _drain(near, child)
        assert child.wait(DEADLINE_S) == 0
    finally:
        child.kill()
        child.wait()
        os.close(near)


def _read_until(terminal: int, wanted: bytes) -> None:
    heard = b""
    deadline = time.monotonic() + DEADLINE_S
    while wanted not in heard:
        assert time.monotonic() < deadline, heard[-2000:]
        if select.select([terminal], [], [], 0.1)[0]:
            heard += os.read(terminal, 65_536)


def _drain(terminal: int, child: subprocess.Popen[bytes]) -> None:
    """Read what is written until the child is gone, so that it is never held up."""
    deadline = time.monotonic() + DEADLINE_S
    while child.poll() is None and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                os.read(terminal, 65_536)
            except OSError:
                return  # the other end is closed


def test_lanes_without_a_station_is_unreachable(k3ctl: K3ctl) -> None:
    assert k3ctl("lanes").code == ExitCode.UNREACHABLE
    ran = k3ctl("lanes", "cancel", "abc", "--json")
    assert ran.code == ExitCode.UNREACHABLE
    assert ran.error["name"] == "UNREACHABLE"
