"""Routes of the placement map in force.

GET /placement; POST /placement/swap, /placement/rollback and /placement/replace, which with
`dry_run` only say what would be done; POST /placement/abort.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from k3d.errors import ConfigError, Refused
from k3d.placement.placement_map import PlacementMap
from k3d.station.replacement import Replacement
from k3d.station.swap_document import placement_document, plan_document
from k3d.station.swap_reconciler import SwapReconciler, check_rate
from k3d.store.records import Intent
from k3d.store.swaps import UNFINISHED

Goal = tuple[str, PlacementMap, dict[str, Any]]
"""A swap's name, its map, and what its intent is to say beside."""


class SwapBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the two changes take. `placement` names a policy or a file on the Station's machine
    and is left out for the others."""

    placement: str | None = None
    dry_run: bool = False
    if_token: str | None = None
    rate_bytes_s: int | None = None
    request_id: str | None = None


def swap_routes(reconciler: SwapReconciler, replacement: Replacement) -> list[Route]:
    """Routes beside the Station's others."""

    async def show(_request: HttpRequest) -> Response:
        document = await run_in_threadpool(placement_document, reconciler)
        standing = replacement.standing
        document["replacement"] = None if standing is None else standing.document()
        return JSONResponse(document)

    async def swap(http: HttpRequest) -> Response:
        body = _body(await http.body())
        name = body.placement
        if name is None:
            raise ConfigError("the swap names no placement", hint="name a policy or a map")

        def change() -> dict[str, Any]:
            return _change(reconciler, body, lambda: (name, reconciler.wanted(name), {}))

        return JSONResponse(await run_in_threadpool(change))

    async def rollback(http: HttpRequest) -> Response:
        body = _body(await http.body())

        def before() -> Goal:
            name, placed = reconciler.before_last()
            return name, placed, reconciler.cut_back(placed.epoch)

        return JSONResponse(await run_in_threadpool(_change, reconciler, body, before))

    async def replace(http: HttpRequest) -> Response:
        body = _body(await http.body())

        return JSONResponse(await run_in_threadpool(_change, reconciler, body, replacement.wanted))

    async def abort(_request: HttpRequest) -> Response:
        intent = await run_in_threadpool(reconciler.abort)
        return JSONResponse(
            {"schema": "k3d.placement-abort/1", "intent": intent.id, "state": intent.state}
        )

    return [
        Route("/placement", show),
        Route("/placement/swap", swap, methods=["POST"]),
        Route("/placement/rollback", rollback, methods=["POST"]),
        Route("/placement/replace", replace, methods=["POST"]),
        Route("/placement/abort", abort, methods=["POST"]),
    ]


def _change(
    reconciler: SwapReconciler, body: SwapBody, find_goal: Callable[[], Goal]
) -> dict[str, Any]:
    """The plan, and the intent that carries it out: none for a dry run or if nothing moves. A
    request that was made before is not made again."""
    rate = check_rate(body.rate_bytes_s)
    known = None if body.dry_run else reconciler.swaps.requested(body.request_id)
    if known is not None:
        return _again(reconciler, body, known, rate)
    name, wanted, extra = find_goal()
    made = reconciler.plan(wanted, body.if_token, extra.get("sparks"))
    cut = extra.get("sparks")
    document = plan_document(reconciler.station, made, name, rate, cut)
    intent = None
    if not body.dry_run and (made.moves or "sparks" in extra):
        figures = {"size_bytes": document["size_bytes"], "parked": made.parked, **extra}
        intent = reconciler.begin(made, name, figures, rate, request_id=body.request_id)
    return {**document, "intent": intent.id if intent else None, "recut": cut}


def _again(reconciler: SwapReconciler, body: SwapBody, known: Intent, rate: int) -> dict[str, Any]:
    """What is left of a swap that was asked for before, and its intent while that can be seen."""
    name = known.plan["name"]
    if body.placement is not None and body.placement != name:
        raise Refused(
            f"request {body.request_id} was of a swap to {name}, not to {body.placement}",
            hint="a request of its own needs an id of its own",
        )
    swaps = reconciler.swaps
    goal = PlacementMap.from_json(msgspec.json.encode(swaps.swap(known.id).plan["map"]))
    document = plan_document(reconciler.station, reconciler.plan(goal), name, rate)
    last = swaps.last_ended()
    seen = known.state in UNFINISHED or (last is not None and last.id == known.id)
    return {**document, "intent": known.id if seen else None}


def _body(body: bytes) -> SwapBody:
    try:
        return msgspec.json.decode(body or b"{}", type=SwapBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the swap cannot be read: {error}") from None
