"""HTTP connections that ask for nothing: each gets a few seconds, and all of them a fixed room.

Every connection is a descriptor. Without this, whoever opens a thousand and sends nothing keeps
everybody else out; the server beneath times a connection out only after its first answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_REQUEST_S = 10.0
"""How long a connection may take from its start to the end of its first request's headers."""
MOST_CONNECTIONS = 512
"""Beyond these, the connection that has asked for nothing the longest makes room."""


class PatientProtocol(H11Protocol):
    """One connection. What has begun a request is never ended from here."""

    _began_s = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._began_s = self.loop.time()
        self._timer = self.loop.call_later(FIRST_REQUEST_S, self._end_if_silent)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """End another connection, if there is one that asked for nothing."""
        others = (each for each in self.connections if isinstance(each, PatientProtocol))
        silent = [each for each in others if each is not self and each._is_silent()]
        if silent:
            min(silent, key=lambda each: each._began_s)._end_if_silent()

    def _is_silent(self) -> bool:
        """Whether it has begun no request yet and is not ending."""
        return self.cycle is None and not self.transport.is_closing()

    def _end_if_silent(self) -> None:
        if self._is_silent():
            self.transport.abort()
