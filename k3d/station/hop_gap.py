"""The gap between one hop and the next, for those beside the engine who want the link."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class HopGap:
    """The engine's thread says when a hop is over; with nobody waiting that costs it nothing."""

    def __init__(self) -> None:
        self._waiting: tuple[threading.Event, ...] = ()
        self._changing = threading.Lock()

    def opened(self) -> None:
        """A hop is over."""
        for event in self._waiting:
            event.set()

    @contextmanager
    def awaited(self) -> Iterator[threading.Event]:
        """An event that is set at the end of every hop meanwhile."""
        event = threading.Event()
        with self._changing:
            self._waiting = (*self._waiting, event)
        try:
            yield event
        finally:
            with self._changing:
                self._waiting = tuple(each for each in self._waiting if each is not event)
