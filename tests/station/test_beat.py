"""What is done every so often goes on after an error and ends after a bug."""

from __future__ import annotations

import threading

import pytest

from k3d.errors import K3Error
from k3d.station.beat import Beat

SOON_S = 0.001


def test_an_error_is_logged_and_the_next_beat_comes(caplog: pytest.LogCaptureFixture) -> None:
    again = threading.Event()
    taken: list[int] = []

    def step() -> None:
        taken.append(1)
        if len(taken) == 1:
            raise K3Error("the disk is full")
        again.set()

    beat = Beat("alerts", SOON_S, step)
    beat.start()
    assert again.wait(10.0)
    beat.close()
    assert "alerts: the disk is full" in caplog.text
    assert not beat._thread.is_alive()


def test_a_bug_ends_it_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    came = threading.Event()

    def step() -> None:
        came.set()
        raise ZeroDivisionError

    beat = Beat("alerts", SOON_S, step)
    beat.start()
    assert came.wait(10.0)
    beat._thread.join(10.0)
    assert not beat._thread.is_alive()
    assert "alerts ends for a reason that is a bug" in caplog.text
    beat.close()


def test_closing_before_it_starts_is_nothing() -> None:
    Beat("alerts", SOON_S, lambda: None).close()
