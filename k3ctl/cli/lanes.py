"""k3ctl lanes: the requests in the Station, and ending one."""

from __future__ import annotations

from typing import Any

import click

from k3ctl.cli.lazy import NounGroup
from k3ctl.cli.options import (
    Invocation,
    columns_options,
    home_options,
    json_option,
    mutation_options,
)
from k3ctl.cli.output import stdout_is_terminal
from k3ctl.cli.screen_size import screen_size
from k3ctl.cli.top_tables import DISPENSABLE, LANES
from k3d.errors import ExitCode


@click.group(cls=NounGroup, invoke_without_command=True)
@columns_options(LANES)
@home_options
@json_option
@click.pass_context
def lanes(context: click.Context) -> int:
    """Show the requests that wait, read their prompt or decode; cancel ends one."""
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    from k3ctl.client.daemon import Daemon

    invocation: Invocation = context.obj
    with Daemon.station_of(invocation.home) as station:
        rows = station.lanes()
    invocation.output.document("k3ctl.lanes/1", {"lanes": rows})
    invocation.listed((LANES, rows), otherwise=lambda: _lines(rows))
    return ExitCode.OK


@lanes.command()
@click.argument("lane", metavar="ID")
@mutation_options()
@home_options
@json_option
@click.pass_obj
def cancel(invocation: Invocation, lane: str) -> int:
    """End a request: its lane is free for others, its client sees an error.

    A `k3ctl chat` whose request it was exits with 1.

    Exits with 10 when no request of that ID is in the Station (any more).
    """
    from k3ctl.client.daemon import Daemon

    with Daemon.station_of(invocation.home) as station:
        answer = station.cancel(lane)
    invocation.output.document("k3ctl.lanes-cancel/1", {"id": lane, "state": answer.get("state")})
    invocation.output.text(f"{lane} ends before its next pass")
    return ExitCode.OK


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["no request is in the Station"]
    if not stdout_is_terminal():
        return LANES.lines(rows)
    return LANES.fitted(rows, screen_size()[0], DISPENSABLE)
