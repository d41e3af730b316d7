"""What destroys something is asked about on a terminal, and refused without one unless --yes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from k3ctl.cli.main import run
from k3ctl.client.processes import find_daemons
from k3d.errors import ExitCode
from tests.ctl.conftest import K3ctl
from tests.ctl.fake_daemons import write_script
from tests.ctl.terminal import terminal

pytestmark = pytest.mark.usefixtures("fake_k3d")


@pytest.fixture
def busy(home: Path, pod_file: Path, k3ctl: K3ctl) -> Iterator[Path]:
    """A pod that answers two requests."""
    assert k3ctl("pod", "up", str(pod_file)).code == 0
    write_script(home, "station", status={"requests": {"running": 1, "waiting": 1}})
    yield home
    assert k3ctl("pod", "down", "--yes").code == 0


def _lives(home: Path) -> bool:
    return len(list(find_daemons(home))) == 3


def test_without_a_terminal_it_is_refused(k3ctl: K3ctl, busy: Path) -> None:
    ran = k3ctl("pod", "down", "--json")
    assert ran.code == ran.error["code"] == ExitCode.REFUSED
    assert "pod down ends 2 requests that are being answered" in ran.error["message"]
    assert "--yes" in ran.error["hint"]
    assert ran.out == ""
    assert _lives(busy)
    assert k3ctl("pod", "down", "--yes").code == ExitCode.OK
    assert not _lives(busy)


@pytest.mark.parametrize("typed", ["\n", "n\n", "yes please\n", "\x04"])
def test_the_default_on_a_terminal_is_no(busy: Path, typed: str) -> None:
    with terminal(typed) as screen:
        code = run(["pod", "down"])
    assert code == ExitCode.REFUSED
    assert "Go on? [y/N]" in screen.text
    # What was typed ahead was echoed before the question; an end of input is no line's end.
    behind = "\n" if typed == "\x04" else " "
    assert f"{behind}k3ctl: nothing was done" in screen.text
    assert _lives(busy)


def test_yes_on_a_terminal(busy: Path) -> None:
    with terminal("y\n") as screen:
        code = run(["pod", "down", "--deadline", "5"])
    assert code == ExitCode.OK
    assert "stopped" in screen.text
    assert not _lives(busy)


def test_a_pod_that_answers_nothing_is_not_asked_about(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    assert k3ctl("pod", "up", str(pod_file)).code == 0
    assert k3ctl("pod", "down").code == ExitCode.OK


def test_a_station_that_says_nothing_can_be_taken_down(
    k3ctl: K3ctl, busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k3ctl.cli.pod.ANSWER_S", 0.2)
    write_script(busy, "station", silent=True)
    assert k3ctl("pod", "down", "--deadline", "0.5").code == ExitCode.OK


def test_a_request_that_was_refused_is_not_done(k3ctl: K3ctl, busy: Path) -> None:
    assert k3ctl("pod", "down", "--request-id", "x").code == ExitCode.REFUSED
    assert k3ctl("pod", "down", "--request-id", "x", "--yes").code == ExitCode.OK
    assert "was done already" in k3ctl("pod", "down", "--request-id", "x").out
