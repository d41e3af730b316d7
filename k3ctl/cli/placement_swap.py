"""k3ctl placement swap, status, abort, rollback: change the map in force while the pod serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from k3ctl.cli.options import Invocation, Real, Seconds, home_options, json_option
from k3d.errors import ExitCode, K3Error

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
MIB = 2**20


def _change_options(command: Decorated) -> Decorated:
    """What swap and rollback have in common."""
    for option in (
        click.option(
            "--dry-run", is_flag=True, help="Show exactly what would be done, do nothing."
        ),
        click.option(
            "--if-token", metavar="TOKEN", help="Only if the state is that of this --dry-run."
        ),
        click.option(
            "--wait/--detach", default=True, show_default=True, help="Return when it has ended."
        ),
        click.option(
            "--deadline",
            type=Seconds(0.1),
            default=600.0,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait.",
        ),
        click.option(
            "--rate",
            type=Real(0.001, 2**20),
            default=64.0,
            show_default=True,
            metavar="MIB",
            help="Most MiB a second to copy.",
        ),
        home_options,
        json_option,
    ):
        command = option(command)
    return command


@click.command()
@click.argument("placement", metavar="MAP|POLICY")
@_change_options
@click.pass_obj
def swap(
    invocation: Invocation,
    placement: str,
    dry_run: bool,
    if_token: str | None,
    wait: bool,
    deadline: float,
    rate: float,
) -> int:
    """Serve by another placement map, without a pause.

    Takes a map's file (.json) or a policy, in policies/placement or a file. Experts are copied
    beside what is served; then the epoch turns between two passes, and the old copies are given
    up.
    """
    from k3ctl.client.swaps import ask_for_swap, placement_argument

    body = {"placement": placement_argument(placement), **_body(dry_run, if_token, rate)}
    made = ask_for_swap(invocation.home, body)
    return _carry_on(invocation, made, "k3ctl.placement-swap/1", dry_run, wait, deadline)


@click.command()
@_change_options
@click.pass_obj
def rollback(
    invocation: Invocation,
    dry_run: bool,
    if_token: str | None,
    wait: bool,
    deadline: float,
    rate: float,
) -> int:
    """Swap back to the map before the last swap."""
    from k3ctl.client.swaps import ask_for_rollback

    made = ask_for_rollback(invocation.home, _body(dry_run, if_token, rate))
    return _carry_on(invocation, made, "k3ctl.placement-rollback/1", dry_run, wait, deadline)


@click.command()
@home_options
@json_option
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show the map in force, the swap under way and the last one."""
    from k3ctl.cli.placement_swap_text import status_lines
    from k3ctl.client.daemon import Daemon

    with Daemon.station_of(invocation.home) as station:
        document = station.placement()
    document.pop("schema")
    invocation.output.document("k3ctl.placement-status/1", document)
    invocation.output.lines(status_lines(document))


@click.command()
@home_options
@json_option
@click.pass_obj
def abort(invocation: Invocation) -> None:
    """End the swap under way before it is in force; its copies are dropped."""
    from k3ctl.client.swaps import ask_for_abort

    document = ask_for_abort(invocation.home)
    document.pop("schema", None)
    invocation.output.document("k3ctl.placement-abort/1", document)
    invocation.output.text(f"swap {document['intent']} {document['state']}")


def _body(dry_run: bool, if_token: str | None, rate: float) -> dict[str, Any]:
    rate_bytes_s = max(1, round(rate * MIB))
    return {"dry_run": dry_run, "if_token": if_token, "rate_bytes_s": rate_bytes_s}


def _carry_on(
    invocation: Invocation,
    made: dict[str, Any],
    schema: str,
    dry_run: bool,
    wait: bool,
    deadline: float,
) -> int:
    """Show the plan; wait for the swap, if there is one and it is wanted."""
    from k3ctl.cli.placement_swap_text import Teller, ended_lines, plan_lines
    from k3ctl.client.swaps import wait_for_swap

    output = invocation.output
    made.pop("schema", None)
    output.lines(plan_lines(made))
    intent = made["intent"]
    ended = None
    if intent is not None and wait:
        ended = wait_for_swap(invocation.home, intent, deadline, Teller(output.note))
        output.lines(ended_lines(ended))
    elif intent is not None:
        output.text(f"swap {intent} is under way; see: k3ctl placement status")
    elif not dry_run:
        output.text("the map in force places experts so already")
    output.document(schema, {**made, "swap": ended})
    if ended is None or ended["state"] == "done":
        return ExitCode.OK
    output.error(
        K3Error(
            ended.get("reason") or f"the swap is {ended['state']}",
            hint="the map that was in force before it serves; see: k3ctl placement status",
        )
    )
    return ExitCode.FAILED
