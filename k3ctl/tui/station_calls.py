"""What panes ask the running Station beside frames, from any thread.

Each call has a connection to itself while it lasts; connections are kept for the next ones. One to
a Station that is gone is dropped, and the next call looks for the one that runs now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from k3d.errors import K3Error

if TYPE_CHECKING:
    from k3ctl.client.daemon import Daemon

CALL_S = 10.0
"""Longer than a frame may take: nothing that is drawn waits for these."""

Answer = TypeVar("Answer")


class StationCalls:
    """The running Station of a home, for many threads."""

    def __init__(self, home: Path, *, timeout_s: float = CALL_S) -> None:
        self._home = home
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: list[Daemon] = []

    def call(self, what: Callable[[Daemon], Answer]) -> Answer:
        """Do something with a connection. Raises K3Error where none runs or it does not answer."""
        from k3ctl.client.daemon import Daemon  # httpx takes a while to import

        with self._lock:
            daemon = self._idle.pop() if self._idle else None
        if daemon is None:
            daemon = Daemon.station_of(self._home, timeout_s=self._timeout_s)
        try:
            answer = what(daemon)
        except K3Error as error:
            self._put_back(daemon, usable=not error.retryable)
            raise
        self._put_back(daemon, usable=True)
        return answer

    def _put_back(self, daemon: Daemon, *, usable: bool) -> None:
        if not usable:
            daemon.close()
            return
        with self._lock:
            self._idle.append(daemon)

    def expert_use(self) -> dict[str, Any]:
        return self.call(lambda daemon: daemon.experts())

    def events(self, since_id: int = 0, limit: int = 200) -> list[dict[str, Any]]:
        """The newest events after number `since_id`, oldest first."""
        return self.call(lambda daemon: daemon.events(since_id=since_id, limit=limit))

    def placement(self) -> dict[str, Any]:
        return self.call(lambda daemon: daemon.placement())

    def trace(self) -> dict[str, Any]:
        return self.call(lambda daemon: daemon.trace())

    def cancel(self, request_id: str) -> dict[str, Any]:
        """End a request. Raises NotFound for one that is neither in a lane nor waiting."""
        return self.call(lambda daemon: daemon.cancel(request_id))
