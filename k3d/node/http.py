"""The HTTP face that every node has: one socket, a bearer token, /health and /shutdown."""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from k3d.errors import ConfigError, K3Error, Refused
from k3d.node.connections import PatientProtocol

MOST_BODY_BYTES = 8 * 2**20


def bind(host: str, port: int) -> socket.socket:
    """A listening address of this node; port 0 takes a free one. Raises K3Error when taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)  # a caller that reads the run file early waits instead of failing
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise K3Error(
                f"port {port} of {host} is in use",
                hint="end what listens there, or give the node another http_port (0 takes any)",
            ) from None
        raise K3Error(f"{host} port {port} cannot be bound: {error.strerror}") from None
    return listener


class NodeServer:
    """Serves a node's routes until asked to stop. `health` gives the document of GET /health."""

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        health: Callable[[], dict[str, Any]],
        routes: Sequence[BaseRoute] = (),
        before_end: Callable[[], None] | None = None,
    ) -> None:
        async def show_health(_request: Request) -> Response:
            return JSONResponse(health())

        async def shut_down(_request: Request) -> Response:
            self.stop()
            return JSONResponse({"schema": "k3d.shutdown/1", "stopping": True})

        own = [Route("/health", show_health), Route("/shutdown", shut_down, methods=["POST"])]
        app = Starlette(routes=[*own, *routes], exception_handlers={K3Error: _error_response})
        config = uvicorn.Config(
            _Guard(app, token), http=PatientProtocol, log_config=None, access_log=False,
            lifespan="off", ws="none", timeout_graceful_shutdown=3, backlog=128,
        )  # fmt: skip
        self._listener = listener
        self._server = _Server(config, before_end)

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    def run(self) -> None:
        """Serve in the calling (main) thread; SIGTERM and SIGINT end it."""
        self._server.run(sockets=[self._listener])

    def stop(self) -> None:
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Calls `before_end` while streams can still be written, so that each gets its last line."""

    def __init__(self, config: uvicorn.Config, before_end: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._before_end = before_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._before_end is not None:
            await asyncio.to_thread(self._before_end)
        await super().shutdown(sockets)


async def _error_response(_request: Request, error: Exception) -> Response:
    assert isinstance(error, K3Error)
    statuses = {2: 400, 5: 429, 10: 404, 11: 409, 12: 409}
    status = statuses.get(int(error.code), 503 if error.retryable else 500)
    return JSONResponse(error.document(), status_code=status)


class _Guard:
    """Turns away requests without the pod's token, and bodies beyond MOST_BODY_BYTES."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            if not hmac.compare_digest(headers.get(b"authorization", b""), self._wanted):
                await _refuse(send, 401, "the pod's token is missing or wrong")
                return
            length = headers.get(b"content-length", b"0")
            if not length.isdigit() or int(length) > MOST_BODY_BYTES:
                await _refuse(send, 413, f"a body may hold {MOST_BODY_BYTES} bytes")
                return
            taken = 0

            async def counted() -> Message:
                nonlocal taken
                message = await receive()
                taken += len(message.get("body", b""))
                if taken > MOST_BODY_BYTES:
                    raise ConfigError(f"a body may hold {MOST_BODY_BYTES} bytes", hint="send less")
                return message

            await self._app(scope, counted, send)
            return
        await self._app(scope, receive, send)


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json.dumps(Refused(message).document()).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
