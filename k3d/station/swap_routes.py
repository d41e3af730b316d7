"""Routes of the placement map in force.

GET /placement; POST /placement/swap and /placement/rollback, which with `dry_run` only say what
would be done; POST /placement/abort.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from k3d.errors import ConfigError
from k3d.placement.placement_map import PlacementMap
from k3d.station.swap_document import placement_document, plan_document
from k3d.station.swap_reconciler import SwapReconciler, check_rate


class SwapBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the two changes take. `placement` names a policy or a file on the Station's machine
    and is left out for a rollback."""

    placement: str | None = None
    dry_run: bool = False
    if_token: str | None = None
    rate_bytes_s: int | None = None
    request_id: str | None = None


def swap_routes(reconciler: SwapReconciler) -> list[Route]:
    """Routes beside the Station's others."""

    async def show(_request: HttpRequest) -> Response:
        return JSONResponse(await run_in_threadpool(placement_document, reconciler))

    async def swap(http: HttpRequest) -> Response:
        body = _body(await http.body())
        name = body.placement
        if name is None:
            raise ConfigError("the swap names no placement", hint="name a policy or a map")

        def change() -> dict[str, Any]:
            return _change(reconciler, body, name, reconciler.wanted(name))

        return JSONResponse(await run_in_threadpool(change))

    async def rollback(http: HttpRequest) -> Response:
        body = _body(await http.body())

        def change() -> dict[str, Any]:
            before = reconciler.before_last()
            return _change(reconciler, body, f"epoch {before.epoch}", before)

        return JSONResponse(await run_in_threadpool(change))

    async def abort(_request: HttpRequest) -> Response:
        intent = await run_in_threadpool(reconciler.abort)
        return JSONResponse(
            {"schema": "k3d.placement-abort/1", "intent": intent.id, "state": intent.state}
        )

    return [
        Route("/placement", show),
        Route("/placement/swap", swap, methods=["POST"]),
        Route("/placement/rollback", rollback, methods=["POST"]),
        Route("/placement/abort", abort, methods=["POST"]),
    ]


def _change(
    reconciler: SwapReconciler, body: SwapBody, name: str, wanted: PlacementMap
) -> dict[str, Any]:
    """The plan, and the intent that carries it out: none for a dry run or if nothing moves."""
    rate = check_rate(body.rate_bytes_s)
    made = reconciler.plan(wanted, body.if_token)
    document = plan_document(reconciler.station, made, name, rate)
    intent = None
    if not body.dry_run and made.moves:
        figures = {"size_bytes": document["size_bytes"], "parked": made.parked}
        intent = reconciler.begin(made, name, figures, rate, request_id=body.request_id)
    return {**document, "intent": intent.id if intent else None}


def _body(body: bytes) -> SwapBody:
    try:
        return msgspec.json.decode(body or b"{}", type=SwapBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the swap cannot be read: {error}") from None
