"""k3ctl placement swap, rollback, replace, abort, status: the map in force of a pod that serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from k3ctl.cli.options import (
    Invocation,
    Real,
    Seconds,
    columns_options,
    home_options,
    json_option,
    mutation_options,
)
from k3ctl.cli.placement_columns import EFFECTS, MOVED, PLACES
from k3ctl.cli.progress import Progress
from k3d.errors import ConfigError, ExitCode, K3Error

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Ask = Callable[[Path, dict[str, Any]], dict[str, Any]]
MIB = 2**20


def _change_options(command: Decorated) -> Decorated:
    """What swap, rollback and replace have in common."""
    # The last one here is the first in help.
    for option in (
        json_option,
        home_options,
        columns_options(MOVED),
        mutation_options(
            dry_run="Show exactly what would be done, do nothing.",
            if_token="Only if the pod is still as the --dry-run saw it that printed this.",
            lock_wait="How long to wait for a swap that is under way.",
            names=("placement",),
        ),
        click.option(
            "--detailed-exitcode",
            is_flag=True,
            help="With --dry-run: exit code 20 when experts would move.",
        ),
        click.option(
            "--rate",
            type=Real(0.001, 2**20),
            default=64.0,
            show_default=True,
            metavar="MIB",
            help="Most MiB a second to copy.",
        ),
        click.option(
            "--deadline",
            type=Seconds(0.1),
            default=600.0,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for its end; the swap goes on after that.",
        ),
        click.option(
            "--wait/--detach", default=True, show_default=True, help="Return when it has ended."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("placement", metavar="MAP|POLICY")
@_change_options
@click.pass_obj
def swap(invocation: Invocation, placement: str, **options: Any) -> int:
    """Serve by another placement map, without a pause.

    Takes a map's file (.json) or a policy, in policies/placement or a file. Experts are copied
    beside what is served; then, between two passes, the new map comes into force with a number of
    its own, its epoch, and the old copies are given up. No token changes.
    """
    from k3ctl.client.swaps import ask_for_swap, placement_argument

    named = {"placement": placement_argument(placement)}
    return _change(invocation, "swap", ask_for_swap, options, named)


@click.command()
@_change_options
@click.pass_obj
def rollback(invocation: Invocation, **options: Any) -> int:
    """Swap back to the map that was in force before the last swap."""
    from k3ctl.client.swaps import ask_for_rollback

    return _change(invocation, "rollback", ask_for_rollback, options)


@click.command()
@_change_options
@click.pass_obj
def replace(invocation: Invocation, **options: Any) -> int:
    """Serve without a spark that was lost.

    What was on the sparks is placed in spare slots of the Station's tiers, read from the
    Station's bank. Where those do not suffice, sparks that are left hold larger slices; where
    these do not either, the answer says how many slots are short. A pod description with
    [replacement] after_s does it by itself. When the spark is back: placement rollback.
    """
    from k3ctl.client.swaps import ask_for_replacement

    return _change(invocation, "replace", ask_for_replacement, options)


@click.command()
@columns_options(PLACES, EFFECTS)
@home_options
@json_option
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show the map in force, lost sparks, the swap under way and the last one."""
    from k3ctl.cli.placement_swap_text import status_lines
    from k3ctl.client.daemon import Daemon

    with Daemon.station_of(invocation.home) as station:
        document = station.placement()
    document.pop("schema")
    invocation.output.document("k3ctl.placement-status/1", document)
    effects = (document["last"] or {}).get("effects", [])
    invocation.listed(
        (PLACES, document["tiers"]), (EFFECTS, effects), otherwise=lambda: status_lines(document)
    )


@click.command()
@mutation_options()
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


def _change(
    invocation: Invocation,
    verb: str,
    ask: Ask,
    options: dict[str, Any],
    named: dict[str, Any] | None = None,
) -> int:
    """Ask the Station for a change, patiently, and see it through."""
    from k3ctl.client.swaps import patiently

    dry_run = options["dry_run"]
    if options["detailed_exitcode"] and not dry_run:
        raise ConfigError("--detailed-exitcode is of a --dry-run", hint="add --dry-run")
    body = {
        "dry_run": dry_run,
        "if_token": options["if_token"],
        "rate_bytes_s": max(1, round(options["rate"] * MIB)),
        "request_id": invocation.request_id,
        **(named or {}),
    }
    output = invocation.output
    made = patiently(lambda: ask(invocation.home, body), options["lock_wait"], output.note)
    schema = f"k3ctl.placement-{verb}/1"
    code = _carry_on(invocation, made, schema, dry_run, options["wait"], options["deadline"])
    moves = bool(made["copies"])
    return ExitCode.WOULD_CHANGE if options["detailed_exitcode"] and moves else code


def _carry_on(
    invocation: Invocation,
    made: dict[str, Any],
    schema: str,
    dry_run: bool,
    wait: bool,
    deadline: float,
) -> int:
    """Show the plan; wait for the swap, if there is one and it is wanted."""
    from k3ctl.cli.placement_swap_text import ended_lines, plan_lines, tell, token_lines
    from k3ctl.client.swaps import wait_for_swap

    output = invocation.output
    made.pop("schema", None)
    told = ["", *token_lines(made)] if dry_run else []
    invocation.listed((MOVED, made["tiers"]), otherwise=lambda: [*plan_lines(made), *told])
    shown = output.lines if invocation.columns is None else lambda _lines: None
    intent = made["intent"]
    ended = None
    if intent is not None and wait:
        with Progress(output) as progress:
            ended = wait_for_swap(
                invocation.home, intent, deadline, lambda swap: tell(progress, swap)
            )
        shown(ended_lines(ended))
    elif intent is not None:
        shown([f"swap {intent} is under way; see: k3ctl placement status"])
    elif not dry_run:
        shown(["the map in force places experts so already"])
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
