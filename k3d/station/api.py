"""The Station's own routes: /status, /chat as a stream of JSON lines, /receipts to keep figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from k3d.engine.request import ErrorEvent, Event, FinishEvent
from k3d.errors import ConfigError, K3Error
from k3d.station.chat import AnswerLines, engine_request, read_request
from k3d.station.status import StationView
from k3d.store.schema import PROVENANCE
from k3d.store.state import StateStore

LINES = "application/x-ndjson"


class ReceiptBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measured result, as POST /receipts takes it; the Station is the store's one writer."""

    kind: str
    provenance: str
    command: str
    figures: dict[str, Any]
    environment: dict[str, Any]


def station_routes(view: StationView, store: StateStore) -> list[Route]:
    """Routes of a Station beside those that every node has."""
    station, scheduler = view.station, view.scheduler

    async def status(_request: HttpRequest) -> Response:
        return JSONResponse(view.status())

    async def chat(http: HttpRequest) -> Response:
        asked = read_request(await http.body())
        config = station.engine.model.config
        room = min(station.engine.limits.max_positions, config.max_positions or 2**31)
        request = await run_in_threadpool(engine_request, asked, station.chat, room)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def deliver(event: Event) -> None:
            with suppress(RuntimeError):  # the loop has ended, and every stream with it
                loop.call_soon_threadsafe(events.put_nowait, event)

        await asyncio.wrap_future(scheduler.submit(request, deliver))
        lines = AnswerLines(asked, station.chat)

        async def stream() -> AsyncIterator[bytes]:
            finished = False
            try:
                while not finished:
                    event = await events.get()
                    finished = isinstance(event, FinishEvent | ErrorEvent)
                    for line in _lines(lines, event):
                        yield msgspec.json.encode(line) + b"\n"
            finally:
                if not finished:  # the client went away
                    scheduler.cancel(request.id)

        return StreamingResponse(stream(), media_type=LINES)

    async def keep_receipt(http: HttpRequest) -> Response:
        body = _receipt(await http.body())
        receipt_id = await run_in_threadpool(
            store.record_receipt,
            body.kind,
            provenance=body.provenance,
            command=body.command,
            figures=body.figures,
            environment=body.environment,
        )
        return JSONResponse({"schema": "k3d.receipt/1", "id": receipt_id})

    return [
        Route("/status", status),
        Route("/chat", chat, methods=["POST"]),
        Route("/receipts", keep_receipt, methods=["POST"]),
    ]


def _receipt(body: bytes) -> ReceiptBody:
    try:
        receipt = msgspec.json.decode(body, type=ReceiptBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the receipt cannot be read: {error}") from None
    if receipt.provenance not in PROVENANCE:
        raise ConfigError(
            f"provenance {receipt.provenance!r} is not one of {', '.join(PROVENANCE)}"
        )
    return receipt


def _lines(lines: AnswerLines, event: Event) -> list[dict[str, Any]]:
    try:
        return lines.lines(event)
    except K3Error as error:
        return [error.document()]
