"""Routes of the trace recorder: GET /trace, POST /trace/record and /trace/stop."""

from __future__ import annotations

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from k3d.errors import ConfigError
from k3d.station.trace_recorder import TraceBody, TraceRecorder


def trace_routes(recorder: TraceRecorder) -> list[Route]:
    """Routes beside the Station's others."""

    async def show(_request: HttpRequest) -> Response:
        return JSONResponse(recorder.status())

    async def record(http: HttpRequest) -> Response:
        return JSONResponse(await run_in_threadpool(recorder.start, _body(await http.body())))

    async def stop(_request: HttpRequest) -> Response:
        return JSONResponse(await run_in_threadpool(recorder.stop))

    return [
        Route("/trace", show),
        Route("/trace/record", record, methods=["POST"]),
        Route("/trace/stop", stop, methods=["POST"]),
    ]


def _body(body: bytes) -> TraceBody:
    try:
        asked = msgspec.json.decode(body, type=TraceBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the trace asked for cannot be read: {error}") from None
    if asked.tokens < 1 or not 0 < asked.share <= 1 or not asked.seconds > 0:
        raise ConfigError(
            "a trace needs at least one token, some seconds and a share above 0 and up to 1"
        )
    return asked
