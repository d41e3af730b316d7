"""Routes of drift and alerts: GET /placement/use, what the router chose lately; GET /alerts."""

from __future__ import annotations

import math

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from k3d.errors import ConfigError
from k3d.station.alerts import Alerts


def drift_routes(alerts: Alerts, layers: tuple[int, ...]) -> list[Route]:
    """Routes beside the Station's others."""

    async def use(http: HttpRequest) -> Response:
        age_s, seen = alerts.seen(_since(http.query_params.get("since_s")))
        return JSONResponse(
            {
                "schema": "k3d.placement-use/1",
                "provenance": "measured",
                "since_s": age_s,
                "rows": seen.tokens,
                "top_k": seen.top_k,
                "layers": layers,
                "uses": seen.counts.tolist(),
            }
        )

    async def show(_request: HttpRequest) -> Response:
        return JSONResponse(
            {"schema": "k3d.alerts/1", "alerts": msgspec.to_builtins(alerts.current())}
        )

    return [Route("/placement/use", use), Route("/alerts", show)]


def _since(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        time_s = float(text)
    except ValueError:
        time_s = math.nan
    if not 0 < time_s < math.inf:
        raise ConfigError(f"since_s {text[:32]!r} is no time", hint="give seconds above 0")
    return time_s
