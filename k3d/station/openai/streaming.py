"""Server-sent events, as far as this API uses them: data lines, comments, [DONE]."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.types import Send

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """A response of events. Sending waits while the client's buffer is full."""

    def __init__(self, send: Send, quiet_s: float) -> None:
        self._send = send
        self._quiet_s = quiet_s
        self._clock = asyncio.get_running_loop().time
        self._sent_s = self._clock()

    async def begin(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})

    async def data(self, body: Any) -> None:
        await self._write(b"data: " + msgspec.json.encode(body) + b"\n\n")

    async def comment_if_quiet(self) -> None:
        """A line that clients skip, when nothing was sent for a while."""
        if self._clock() - self._sent_s >= self._quiet_s:
            await self._write(b": waiting\n\n")

    async def end(self) -> None:
        await self._write(b"data: [DONE]\n\n", more=False)

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._sent_s = self._clock()
