"""Routes of what the pod looks like: GET /frame and GET /experts."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from k3d.station.assembly import Station
from k3d.station.frame_taker import FrameTaker

JSON = "application/json"


def frame_routes(station: Station, frames: FrameTaker) -> list[Route]:
    """Routes beside the Station's others."""

    async def frame(_request: HttpRequest) -> Response:
        return Response(frames.latest_json, media_type=JSON)

    async def experts(_request: HttpRequest) -> Response:
        document = await run_in_threadpool(expert_document, station)
        return Response(document, media_type=JSON)

    return [Route("/frame", frame), Route("/experts", experts)]


def expert_document(station: Station) -> bytes:
    """Every expert's uses since the start and its tier, a row a MoE layer."""
    use, placement = station.use, station.placement
    homes, width = list(placement.tier_of), placement.experts
    document: dict[str, Any] = {
        "schema": "k3d.experts/1",
        "provenance": "measured",
        "epoch": placement.epoch,
        "layers": list(use.layers),
        "experts": width,
        "top_k": station.shape.top_k,
        "rows": use.rows,
        "uses": use.snapshot().tolist(),
        "tier_names": list(placement.tiers),
        "tiers": [homes[first : first + width] for first in range(0, len(homes), width)],
    }
    return msgspec.json.encode(document)
