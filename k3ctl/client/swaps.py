"""Swaps of the placement map, asked of the Station and waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from k3ctl.client.daemon import Daemon
from k3d.errors import ExitCode, K3Error, TimedOut
from k3d.placement.policy import MAP_SUFFIX

PLAN_S = 120.0
"""A map of the largest model is planned in less."""
POLL_S = 0.2


def placement_argument(name: str) -> str:
    """A name as the Station can look it up: files by their whole path."""
    if name.endswith((MAP_SUFFIX, ".toml")) or "/" in name:
        return str(Path(os.path.expanduser(name)).absolute())  # noqa: PTH111 Path's raises for ~nobody
    return name


def ask_for_swap(home: Path, body: dict[str, Any]) -> dict[str, Any]:
    """The plan, with the intent that carries it out. Raises what the Station refuses it with."""
    with Daemon.station_of(home, timeout_s=PLAN_S) as station:
        return station.change_placement("swap", body)


def ask_for_rollback(home: Path, body: dict[str, Any]) -> dict[str, Any]:
    with Daemon.station_of(home, timeout_s=PLAN_S) as station:
        return station.change_placement("rollback", body)


def ask_for_replacement(home: Path, body: dict[str, Any]) -> dict[str, Any]:
    with Daemon.station_of(home, timeout_s=PLAN_S) as station:
        return station.change_placement("replace", body)


def patiently(
    ask: Callable[[], dict[str, Any]], wait_s: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Ask again while another swap is under way, for `wait_s` at most; `tell` is told of it once.
    Raises what the last answer was."""
    until_s = time.monotonic() + wait_s
    told = False
    while True:
        try:
            return ask()
        except K3Error as error:
            if error.code != ExitCode.LOCKED or time.monotonic() >= until_s:
                raise
            if not told:
                tell(error.message)
            told = True
        time.sleep(POLL_S)


def ask_for_abort(home: Path) -> dict[str, Any]:
    with Daemon.station_of(home) as station:
        return station.change_placement("abort", {})


def wait_for_swap(
    home: Path, intent: str, deadline_s: float, tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """The swap once it has ended; `tell` gets it at every look before. A Station that restarts
    meanwhile goes on with it. Raises TimedOut with what it waits for."""
    until_s = time.monotonic() + deadline_s
    waiting: str | None = None
    while True:
        try:
            with Daemon.station_of(home) as station:
                document = station.placement()
            last, under_way = document.get("last") or {}, document.get("swap") or {}
            if last.get("intent") == intent:
                return last
            if under_way.get("intent") == intent:
                waiting = under_way.get("paused")
                tell(under_way)
        except K3Error as error:
            if not error.retryable:
                raise
            waiting = error.message
        if time.monotonic() > until_s:
            raise TimedOut(
                f"the swap did not end within {deadline_s:g} s"
                + (f": {waiting}" if waiting else ""),
                hint="it goes on; see: k3ctl placement status",
            )
        time.sleep(POLL_S)
