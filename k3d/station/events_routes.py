"""Routes of what happened: GET /events?since_id=&limit=&node=, and POST /events from k3ctl."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from k3d.errors import ConfigError
from k3d.store.state import StateStore

DEFAULT_LIMIT = 200
MOST = 5000


class EventBody(msgspec.Struct, frozen=True):
    """What a command did that the Station did not see, as POST /events takes it."""

    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    message: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    node: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    detail: dict[str, Any] | None = None


def events_routes(store: StateStore) -> list[Route]:
    """Routes beside the Station's others."""

    async def show(http: HttpRequest) -> Response:
        asked = http.query_params
        limit = _number(asked.get("limit"), "limit", DEFAULT_LIMIT)
        if not 1 <= limit <= MOST:
            raise ConfigError(f"limit {limit} is not between 1 and {MOST}")
        since_id = _number(asked.get("since_id"), "since_id", 0)
        found = await run_in_threadpool(
            store.events, limit=limit, node=asked.get("node"), since_id=since_id
        )
        document = {"schema": "k3d.events/1", "events": found}
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def note(http: HttpRequest) -> Response:
        try:
            event = msgspec.json.decode(await http.body(), type=EventBody)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"the event cannot be read: {error}") from None
        number = await run_in_threadpool(
            store.record_event, event.kind, event.message, node=event.node, detail=event.detail
        )
        document = {"schema": "k3d.event/1", "id": number}
        return Response(msgspec.json.encode(document), media_type="application/json")

    return [Route("/events", show), Route("/events", note, methods=["POST"])]


def _number(text: str | None, key: str, missing: int) -> int:
    if text is None:
        return missing
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ConfigError(f"{key} {text[:20]!r} is not a whole number")
    return int(text)
