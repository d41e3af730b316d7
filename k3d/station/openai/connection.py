"""Connections that can neither be held open for nothing nor make the Station wait.

uvicorn has no time limit for headers and none for a client that stops reading; both are set here,
on its protocol class, whose callbacks of asyncio's Protocol are the interface.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from k3d.station.openai.errors import ApiError, overloaded
from k3d.station.openai.limits import ApiLimits

# Scanners send garbage all day; one line for each would fill the log.
_log = logging.getLogger("k3d.station.openai.http")
_log.setLevel(logging.ERROR)


def protocol_class(limits: ApiLimits) -> type[H11Protocol]:
    """The protocol of connections under `limits`."""
    return type("ApiProtocol", (_ApiProtocol,), {"limits": limits})


class _ApiProtocol(H11Protocol):
    """Closes a connection whose headers do not come, or whose client does not read.

    A client that closes its sending half counts as gone: its requests are cancelled.
    """

    limits: ApiLimits
    _began_s = 0.0
    _headers_due: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = _log
        self._began_s = self.loop.time()
        self._await_headers()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        if not self._answering and self._headers_due is None:
            self._await_headers()
        super().data_received(data)
        if self._answering:
            self._headers_due = _cancelled(self._headers_due)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = _cancelled(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_due = _cancelled(self._headers_due)
        self._stalled = _cancelled(self._stalled)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._write_and_close(ApiError("this is no HTTP request, or its headers are too large"))

    def _make_room(self) -> None:
        """End the oldest connection that asks for nothing; without one, refuse this."""
        others = (each for each in self.connections if isinstance(each, _ApiProtocol))
        idle = [each for each in others if each is not self and each._idle]
        if idle:
            min(idle, key=lambda each: each._began_s).transport.abort()
        else:
            self._write_and_close(overloaded("too many connections"))

    @property
    def _idle(self) -> bool:
        return not self._answering and not self.transport.is_closing()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_headers(self) -> None:
        self._headers_due = self.loop.call_later(self.limits.header_s, self.transport.abort)

    def _write_and_close(self, error: ApiError) -> None:
        """A reply without a request."""
        body = msgspec.json.encode(error.body())
        head = (
            f"HTTP/1.1 {error.status} Refused\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
