"""Route of what happened: GET /events?since_id=&limit=&node=."""

from __future__ import annotations

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from k3d.errors import ConfigError
from k3d.store.state import StateStore

DEFAULT_LIMIT = 200
MOST = 5000


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

    return [Route("/events", show)]


def _number(text: str | None, key: str, missing: int) -> int:
    if text is None:
        return missing
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ConfigError(f"{key} {text[:20]!r} is not a whole number")
    return int(text)
