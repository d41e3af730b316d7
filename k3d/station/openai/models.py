"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from k3d.station.openai import responses
from k3d.station.openai.errors import ApiError
from k3d.station.openai.served import Served


def model_routes(served: Served) -> list[BaseRoute]:
    """The one model that is served. Ids may hold slashes."""
    model = responses.Model(id=served.model, created=served.created, max_model_len=served.room)

    async def models(_request: Request) -> Response:
        return _json(responses.ModelList(data=[model]))

    async def one_model(request: Request) -> Response:
        asked = request.path_params["model"]
        if asked != served.model:
            raise ApiError(
                f"the model {asked[:100]!r} does not exist here",
                status=404,
                param="model",
                code="model_not_found",
            )
        return _json(model)

    return [Route("/v1/models", models), Route("/v1/models/{model:path}", one_model)]


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
