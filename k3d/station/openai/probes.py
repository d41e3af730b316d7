"""/health, /ready and /metrics.

/health says whether the engine makes progress: 503 means that a restart may help. /ready says
whether a request sent now would be answered, with the model's own tokens.
"""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from k3d.station.metrics import ApiMetrics
from k3d.station.openai.limits import Admission
from k3d.station.openai.served import Served

STALLED_S = 5.0


def probe_routes(served: Served, admission: Admission, metrics: ApiMetrics) -> list[BaseRoute]:
    async def health(_request: Request) -> Response:
        return _answer(_health(served))

    async def ready(_request: Request) -> Response:
        return _answer(_health(served) or _readiness(served, admission))

    async def show_metrics(_request: Request) -> Response:
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [
        Route("/health", health),
        Route("/ping", health),
        Route("/ready", ready),
        Route("/metrics", show_metrics),
    ]


def _answer(reason: str | None) -> Response:
    body = {"status": "ok" if reason is None else "unavailable", "reason": reason}
    return JSONResponse(body, status_code=200 if reason is None else 503)


def _health(served: Served) -> str | None:
    """Why the engine is not well; None when it is."""
    if not served.engine.alive:
        return "the engine has ended"
    age = served.engine.progress_age_s
    return f"the engine has finished no pass for {age:.1f} s" if age > STALLED_S else None


def _readiness(served: Served, admission: Admission) -> str | None:
    if admission.draining:
        return "the Station is shutting down"
    if admission.full:
        return "every place is taken"
    if served.synthetic_acceptance is not None:
        return "drafts are accepted by a made-up rate: the tokens are not the model's"
    state, reason = served.state()
    return None if state == "healthy" else reason or state
