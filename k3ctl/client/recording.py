"""Traces of live traffic, asked of the Station and waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from k3ctl.client.daemon import Daemon

POLL_S = 0.2
STOP_S = 30.0
"""A recording that ends writes what it has."""


def begin_recording(home: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Raises what the Station refuses it with."""
    with Daemon.station_of(home) as station:
        return station.change_trace("record", asked)


def end_recording(home: Path) -> dict[str, Any]:
    with Daemon.station_of(home, timeout_s=STOP_S) as station:
        return station.change_trace("stop", {})


def wait_for_recording(home: Path, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The recording once it has ended by itself; `tell` gets it at every look."""
    with Daemon.station_of(home) as station:
        while True:
            document = station.trace()
            tell(document)
            if document["state"] != "recording":
                return document
            time.sleep(POLL_S)
