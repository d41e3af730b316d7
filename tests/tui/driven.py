"""The console under a pilot: a still pod, and waiting for what should come."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from textual.pilot import Pilot

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.marks import UNICODE, Marks
from k3d.errors import K3Error, NotFound
from k3d.store.frame import Frame
from tests.tui.screen_text import settled
from tests.tui.simulated_pod import SimulatedPod

DEADLINE_S = 30.0
STILL_S = 3_600.0
"""An interval in which no second tick comes."""

Body = Callable[[ConsoleApp, Pilot[None]], Awaitable[None]]


@dataclass
class StillSource:
    """Always the same frame; `hold` makes questions hang, `error` makes them fail."""

    frame: Frame
    error: K3Error | None = None
    cancelled: list[str] = field(default_factory=list)
    asked: int = 0

    def __post_init__(self) -> None:
        self.free = threading.Event()
        self.free.set()

    def hold(self) -> None:
        self.free.clear()

    def release(self) -> None:
        self.free.set()

    def latest(self) -> Frame:
        self.asked += 1
        self.free.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error
        return self.frame

    def cancel(self, lane: str) -> None:
        self.cancelled.append(lane)

    def expert_use(self) -> dict[str, Any]:
        raise NotFound("this Station counts no expert use")

    def placement(self) -> dict[str, Any]:
        raise NotFound("this Station has no map")

    def trace(self) -> dict[str, Any]:
        raise NotFound("this Station records no trace")

    def events(self, since_id: int = 0, limit: int = 200) -> list[dict[str, Any]]:
        return []


def still(pod: SimulatedPod, number: int = 200) -> StillSource:
    return StillSource(pod.frame(number))


def drive(
    body: Body,
    *,
    size: tuple[int, int] = (120, 40),
    pod: SimulatedPod | None = None,
    source: Any = None,
    behind: int = 50,
    interval_s: float = STILL_S,
    marks: Marks = UNICODE,
    **settings: Any,
) -> None:
    """Run `body(app, pilot)` on the console after its first frame, with `behind` seconds of trail.

    The local time is UTC, so that clocks on the screen are the same everywhere.
    """
    pod = pod or SimulatedPod()
    source = still(pod) if source is None else source

    async def run() -> None:
        app = ConsoleApp(source, interval_s=interval_s, marks=marks, **settings)
        if isinstance(source, StillSource):
            first = source.frame.sequence - behind
            for number in range(first, source.frame.sequence):
                app.trail.add(pod.frame(number))
        async with app.run_test(size=size) as pilot:
            if isinstance(source, StillSource) and source.free.is_set() and not source.error:
                await until(pilot, lambda: app.snapshot.number > 0)
            await until(pilot, lambda: app.pane is not None and app.pane.is_attached)
            await settled(pilot)
            await body(app, pilot)
            if isinstance(source, StillSource):
                source.release()

    os.environ["TZ"] = "UTC"
    time.tzset()
    asyncio.run(run())


async def until(pilot: Pilot[Any], condition: Callable[[], object]) -> None:
    """Wait until a condition holds; fails at a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await pilot.pause(0.005)


async def opened(app: ConsoleApp, pilot: Pilot[Any], name: str, key: str) -> None:
    """Press a pane's key and wait until it is drawn."""
    await pilot.press(key)
    await until(pilot, lambda: app.pane_name == name and name in app._body.opened)
    await settled(pilot)


NAMES = {
    "/": "slash", ":": "colon", "-": "minus", "!": "exclamation_mark", " ": "space",
    "^": "circumflex_accent", "$": "dollar_sign", "[": "left_square_bracket", ".": "full_stop",
    "?": "question_mark", "@": "at",
}  # fmt: skip
"""Keys that are not named by their character."""


async def typed(pilot: Pilot[Any], text: str) -> None:
    """Press the keys of a text."""
    for character in text:
        await pilot.press(NAMES.get(character, character))


def rows_of(app: ConsoleApp) -> list[str]:
    """Keys of the rows that the pane in front shows."""
    assert app.pane is not None
    table = app.pane.table()
    assert table is not None
    return [row.key for row in table.rows]
