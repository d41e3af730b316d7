"""The door of a spark: takes callers in and hands each to a thread that greets it.

It waits for nobody: what a caller has to do, it does in its own thread and in bounded time. Where
too many are being greeted, the one greeted longest is turned away: who says nothing must not keep
out a Station, which needs a few milliseconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from k3d.errors import FabricError, TimedOut
from k3d.fabric.link import Caller, Listener

TICK_S = 0.5
"""How long one wait for a caller takes."""
MOST_GREETINGS = 8
REST_S = 0.2
"""Pause after a caller could not be taken, for want of descriptors above all."""

Greet = Callable[[Caller, Callable[[], None]], None]

log = logging.getLogger(__name__)


class Door:
    """Keeps a listener until `stopping` is set. `greet` gets a caller and a function to call when
    it is no stranger any more, or is about to close it: from then on the door leaves it alone."""

    def __init__(
        self, listener: Listener, name: str, stopping: threading.Event, greet: Greet
    ) -> None:
        self._listener = listener
        self._name = name
        self._stopping = stopping
        self._greet = greet
        self._lock = threading.Lock()  # guards _greeted
        self._greeted: dict[int, Caller] = {}  # who is being greeted, the longest first
        self._thread = threading.Thread(target=self._keep, name=f"{name}-door", daemon=True)

    def open(self) -> None:
        self._thread.start()

    @property
    def kept(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Turn away whoever is still being greeted. Once `stopping` is set."""
        self._thread.join()
        self._listener.close()
        with self._lock:
            for caller in self._greeted.values():
                caller.shutdown()

    def _keep(self) -> None:
        number, told = 0, False
        while not self._stopping.is_set():
            try:
                caller = self._listener.accept(TICK_S)
            except TimedOut:
                told = False
                continue
            except FabricError as error:
                if not told:
                    log.warning("%s cannot take callers: %s", self._name, error)
                told = True
                self._stopping.wait(REST_S)
                continue
            number += 1
            self._let_in(number, caller)
            threading.Thread(
                target=self._greet,
                args=(caller, lambda number=number: self._let_go(number)),
                name=f"{self._name}-greeting",
                daemon=True,
            ).start()

    def _let_in(self, number: int, caller: Caller) -> None:
        with self._lock:
            self._greeted[number] = caller
            if len(self._greeted) > MOST_GREETINGS:
                self._greeted.pop(min(self._greeted)).shutdown()

    def _let_go(self, number: int) -> None:
        with self._lock:
            self._greeted.pop(number, None)
