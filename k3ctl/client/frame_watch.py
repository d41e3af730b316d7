"""The newest frame, asked for again and again by a thread, so that whoever draws never waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from k3d.errors import K3Error, TimedOut
from k3d.store.frame import Frame

SECOND_FRAME_S = 5.0
ASK_AGAIN_S = 0.2


class FrameSource(Protocol):
    """The pod as it is now (k3ctl.client.frames.LiveFrames)."""

    def latest(self) -> Frame: ...


@dataclass(frozen=True)
class Seen:
    """What is known: the last good frame, when it came (monotonic), and the error since then."""

    frame: Frame | None = None
    came_s: float = 0.0
    error: K3Error | None = None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.came_s


class FrameWatch:
    """Asks in a thread of its own every `interval_s`; `told` is called after each answer."""

    def __init__(
        self, source: FrameSource, interval_s: float, told: Callable[[], None], first: Frame
    ) -> None:
        self._source = source
        self._interval_s = interval_s
        self._told = told
        self._stopping = threading.Event()
        self.seen = Seen(first, time.monotonic())
        self._thread = threading.Thread(target=self._run, name="frame-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End it after the answer it waits for; nobody waits for that."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                seen = Seen(self._source.latest(), time.monotonic())
            except K3Error as error:
                seen = Seen(self.seen.frame, self.seen.came_s, error)
            if not self._stopping.is_set():
                self.seen = seen
                self._told()


def frame_with_rates(source: FrameSource) -> Frame:
    """The newest frame, or the next one when it is a Station's first: that has no interval yet,
    and rates need two looks. Raises what the source raises, TimedOut when no second one comes."""
    frame = source.latest()
    deadline = time.monotonic() + SECOND_FRAME_S
    while frame.sequence < 1:
        if time.monotonic() > deadline:
            raise TimedOut(
                "the Station takes no frames: its first is also its newest",
                hint="see: k3ctl health",
            )
        time.sleep(ASK_AGAIN_S)
        frame = source.latest()
    return frame
