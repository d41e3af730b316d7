"""The API's server: a socket, thread and event loop apart from those of the admin routes."""

from __future__ import annotations

import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from k3d.errors import ConfigError
from k3d.placement.pod import LOOPBACK
from k3d.station.metrics import ApiMetrics
from k3d.station.openai.chat_completions import read_chat_exchange
from k3d.station.openai.completion_route import CompletionRoute
from k3d.station.openai.completions import read_completion_exchange
from k3d.station.openai.connection import protocol_class
from k3d.station.openai.errors import ApiError
from k3d.station.openai.gate import Gate
from k3d.station.openai.grammar import Grammars
from k3d.station.openai.keys import FILE, KeyFile
from k3d.station.openai.limits import Admission, ApiLimits
from k3d.station.openai.models import model_routes
from k3d.station.openai.openapi import document
from k3d.station.openai.probes import probe_routes
from k3d.station.openai.served import Served

_READERS = 2
_PROMPTS_A_LANE = 4
_END_S = 5.0

log = logging.getLogger(__name__)


class ApiServer:
    """Serves one model on a listening socket until it is stopped."""

    def __init__(
        self,
        listener: socket.socket,
        host: str,
        served: Served,
        home: Path,
        limits: ApiLimits | None = None,
    ) -> None:
        """Raises ConfigError when `host` is beyond loopback and the home has no keys."""
        self._listener = listener
        self._host = host
        self.limits = limits or ApiLimits()
        keys = KeyFile(home)
        loopback = host in LOOPBACK
        check_exposure(host, keys)
        if not loopback and served.synthetic_acceptance is not None:
            raise ConfigError(
                f"made-up acceptance is for loopback, and the API listens on {host}",
                hint="use api_host 127.0.0.1, or leave --synthetic-acceptance out",
            )
        self.admission = Admission(
            served.lanes + served.queue,
            _PROMPTS_A_LANE * max(1, served.lanes) * served.room,
            self.limits.all_bodies_bytes,
            lambda: len(keys) > 1,
        )
        self.metrics = ApiMetrics(
            served.model,
            served.engine.counts,
            lambda: served.engine.progress_age_s,
            served.metrics,
        )
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="api-reader")
        stamp = served.synthetic_acceptance
        app = Gate(
            self._app(served),
            keys,
            self.limits,
            self.metrics,
            loopback=loopback,
            stamp=None if stamp is None else f"{stamp:g}",
        )
        self._server = uvicorn.Server(self._config(app))
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)

    @property
    def url(self) -> str:
        """What clients take for a base URL."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._listener.getsockname()[1]}/v1"

    def start(self) -> None:
        self._thread.start()

    def drain(self) -> None:
        """Take nothing on any more, and give running answers a moment to end."""
        self.admission.draining = True
        deadline_s = time.monotonic() + self.limits.drain_s
        while self.admission.choices and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server; streams that are still open are cut."""
        self.admission.draining = True
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(timeout=_END_S)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._listener.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])

    def _app(self, served: Served) -> ASGIApp:
        grammars = Grammars(served.chat.tokenizer, served.vocab_size, served.chat.stop_id)
        readers = {
            "/v1/chat/completions": partial(read_chat_exchange, served=served, grammars=grammars),
            "/v1/completions": partial(read_completion_exchange, served=served),
        }
        routes: list[BaseRoute] = [
            Route(
                path,
                CompletionRoute(
                    read, self._readers, served.engine, self.admission, self.limits, self.metrics
                ),
                methods=["POST"],
            )
            for path, read in readers.items()
        ]
        described = msgspec.json.encode(document(served.model))

        async def describe(_request: Request) -> Response:
            return Response(described, media_type="application/json")

        routes += [*model_routes(served), *probe_routes(served, self.admission, self.metrics)]
        routes.append(Route("/openapi.json", describe))
        app = Starlette(
            routes=routes,
            exception_handlers={
                ApiError: _show_error,
                HTTPException: _show_http_error,
                Exception: _show_bug,
            },
        )
        app.router.redirect_slashes = False
        return app

    def _config(self, app: ASGIApp) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            http=protocol_class(self.limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=int(self.limits.idle_s),
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=self.limits.header_bytes,
            backlog=128,
        )


def check_exposure(host: str, keys: KeyFile) -> None:
    """Raises ConfigError where anybody beyond this machine could come in."""
    if host not in LOOPBACK and not len(keys):
        raise ConfigError(
            f"the API listens on {host}, beyond this machine, and {keys.path} has no keys",
            hint=f"write keys to {FILE} in the home, one a line, mode 0600; or api_host 127.0.0.1",
        )


async def _show_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return Response(
        msgspec.json.encode(error.body()),
        error.status,
        headers=error.headers,
        media_type="application/json",
    )


async def _show_bug(request: Request, _error: Exception) -> Response:
    """The error itself goes to the log."""
    shown = ApiError("the server failed", status=500, kind="server_error")
    return await _show_error(request, shown)


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: "there is no such route", 405: f"{request.method} is not served here"}
    message = what.get(error.status_code, error.detail)
    shown = ApiError(message, status=error.status_code, headers=dict(error.headers or {}))
    return await _show_error(request, shown)
