"""Routes of the lanes: GET /lanes, POST /lanes/cancel."""

from __future__ import annotations

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from k3d.errors import ConfigError
from k3d.station.lane_watch import LaneWatch
from k3d.station.scheduler import Scheduler


class CancelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of a request, as GET /lanes gives it."""

    id: str


def lanes_routes(lanes: LaneWatch, scheduler: Scheduler) -> list[Route]:
    """Routes beside the Station's others."""

    async def show(_request: HttpRequest) -> Response:
        document = {"schema": "k3d.lanes/1", "provenance": "measured", "lanes": lanes.now()}
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def cancel(http: HttpRequest) -> Response:
        asked = _body(await http.body())
        lanes.require(asked.id)
        # Before its next pass; a pass that waits for a node may take a while to get there.
        scheduler.cancel(asked.id)
        return JSONResponse({"schema": "k3d.lanes-cancel/1", "id": asked.id, "state": "cancelling"})

    return [Route("/lanes", show), Route("/lanes/cancel", cancel, methods=["POST"])]


def _body(body: bytes) -> CancelBody:
    try:
        return msgspec.json.decode(body, type=CancelBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the request to cancel cannot be read: {error}") from None
