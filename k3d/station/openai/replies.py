"""JSON replies and refusals, as plain ASGI."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Receive, Send

from k3d.station.openai.errors import ApiError

_LINGER_S = 2.0
_LINGER_BYTES = 64 * 2**20


async def reply(
    send: Send, body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> None:
    """Send `body` as JSON."""
    encoded = msgspec.json.encode(body)
    await send({"type": "http.response.start", "status": status,
                "headers": _headers(encoded, headers)})  # fmt: skip
    await send({"type": "http.response.body", "body": encoded})


async def refuse(error: ApiError, receive: Receive, send: Send) -> None:
    """Send an error to a client that may still be sending. Its bytes are thrown away for a
    moment: a connection that is closed on unread bytes takes the reply down with it."""
    encoded = msgspec.json.encode(error.body())
    headers = _headers(encoded, {**error.headers, "Connection": "close"})
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": encoded, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            taken = 0
            while taken < _LINGER_BYTES:
                message = await receive()
                taken += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    break
    await send({"type": "http.response.body", "body": b""})


def _headers(encoded: bytes, headers: dict[str, str] | None) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(encoded)).encode()),
        *((key.lower().encode(), value.encode()) for key, value in (headers or {}).items()),
    ]
