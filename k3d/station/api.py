"""The Station's own routes.

/status; /chat, a stream of JSON lines; /engine, what was counted and how it decodes; /tokens, the
ids of a text; /receipts, to keep figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from k3d.engine.request import ErrorEvent, Event, FinishEvent
from k3d.errors import ConfigError
from k3d.station.chat import AnswerLines, engine_request, read_request
from k3d.station.status import StationView
from k3d.store.schema import PROVENANCE
from k3d.store.state import StateStore

LINES = "application/x-ndjson"


class TextBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What POST /tokens takes: raw text, in which no special token is meant."""

    text: str


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
    engine = station.engine

    async def status(_request: HttpRequest) -> Response:
        return JSONResponse(view.status())

    async def chat(http: HttpRequest) -> Response:
        asked = read_request(await http.body())
        room = engine.most_positions
        request = await run_in_threadpool(engine_request, asked, station.chat, room)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def deliver(event: Event) -> None:
            with suppress(RuntimeError):  # the loop has ended, and every stream with it
                loop.call_soon_threadsafe(events.put_nowait, event)

        await asyncio.wrap_future(scheduler.submit(request, deliver))
        lines = AnswerLines(asked, station.chat, engine.synthetic_acceptance)

        async def stream() -> AsyncIterator[bytes]:
            finished = False
            try:
                while not finished:
                    event = await events.get()
                    finished = isinstance(event, FinishEvent | ErrorEvent)
                    for line in lines.lines(event):
                        yield msgspec.json.encode(line) + b"\n"
            finally:
                if not finished:  # the client went away
                    scheduler.cancel(request.id)

        return StreamingResponse(stream(), media_type=LINES)

    async def show_engine(_request: HttpRequest) -> Response:
        drafter = engine.drafter
        return JSONResponse(
            {
                "schema": "k3d.engine/1",
                "provenance": "measured",
                "context": engine.most_positions,
                "lanes": engine.limits.lanes,
                "chunk": engine.chunk,
                "reuses_prefixes": engine.lanes.memory.cache is not None,
                "draft_block": None if drafter is None else drafter.block,
                "synthetic_acceptance": engine.synthetic_acceptance,
                "counts": asdict(scheduler.counts()),
            }
        )

    async def tokens(http: HttpRequest) -> Response:
        text = _text(await http.body())
        ids = await run_in_threadpool(station.tokenizer.encode, text)
        return JSONResponse({"schema": "k3d.tokens/1", "ids": ids})

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
        Route("/engine", show_engine),
        Route("/tokens", tokens, methods=["POST"]),
        Route("/receipts", keep_receipt, methods=["POST"]),
    ]


def _text(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=TextBody).text
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the text cannot be read: {error}") from None


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
