"""k3ctl pod: up, down, status."""

from __future__ import annotations

import click

from k3ctl.cli.lazy import NounGroup
from k3ctl.cli.options import (
    Invocation,
    Seconds,
    columns_options,
    home_options,
    json_option,
    mutation_options,
)
from k3ctl.cli.reasons import together, without_name
from k3ctl.cli.status import status
from k3ctl.cli.table import Column, Columns, count, size
from k3d.errors import ExitCode, K3Error

NODES = Columns(
    "nodes",
    (
        Column("node", "node"),
        Column("role", "role"),
        Column("outcome", "outcome"),
        Column("reason", "reason"),
        Column("pid", "pid", right=True),
    ),
)
TIERS = Columns(
    "tiers (with --dry-run)",
    (
        Column("tier", "tier"),
        Column("node", "node"),
        Column("host", "host"),
        Column("slots", "slots", count, right=True),
        Column("experts", "experts", count, right=True),
        Column("memory", "memory_bytes", size, right=True),
    ),
)
LOCK_WAIT = "How long to wait for another pod up or down."
ANSWER_S = 2.0
"""A Station that does not say within this what it is doing is not asked about it."""


@click.group(cls=NounGroup)
def pod() -> None:
    """Bring the pod up, take it down, show its state."""


pod.add_command(status)


@pod.command()
@click.argument("description", default="embedded", metavar="[NAME|FILE]")
@click.option(
    "--wait/--detach", default=True, show_default=True, help="Return when every node serves."
)
@click.option(
    "--deadline",
    type=Seconds(0.1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the nodes.",
)
@click.option(
    "--transport",
    type=click.Choice(["inproc", "shm", "tcp"]),
    help="How the Station reaches the sparks (else as described).",
)
@click.option(
    "--placement",
    metavar="NAME|FILE",
    help="Where experts live: a policy or a map (else as described).",
)
@click.option(
    "--dtype", type=click.Choice(["bf16", "fp32"]), help="Type of activations (else as described)."
)
@click.option(
    "--chunk",
    type=click.IntRange(1, 65536),
    help="Most tokens of a prompt in one pass (else as described).",
)
@mutation_options(
    dry_run="Check everything, show the plan, start nothing.",
    lock_wait=LOCK_WAIT,
    names=("description", "placement"),
    makes_home=True,
)
@columns_options(NODES, TIERS)
@home_options
@json_option
@click.pass_obj
def up(
    invocation: Invocation,
    description: str,
    dry_run: bool,
    wait: bool,
    deadline: float,
    transport: str | None,
    placement: str | None,
    dtype: str | None,
    chunk: int | None,
    lock_wait: float,
) -> int:
    """Start what is missing of a pod and wait until it serves.

    Takes the name of a description in policies/pods (embedded by default) or a file. A pod that
    runs already is left alone. --dry-run checks any description, also one of other machines.
    """
    from k3ctl.client.bring_up import Outcome, bring_up, exit_code
    from k3ctl.client.home_setup import set_up_home
    from k3ctl.client.pod_plan import PodOptions, make_plan

    output, home = invocation.output, invocation.home
    options = PodOptions(transport, placement, dtype, chunk)
    plan = make_plan(description, home, options)
    if dry_run:
        from k3ctl.cli.pod_plan_text import plan_lines

        output.document("k3ctl.pod-plan/1", plan.as_json())
        invocation.listed((TIERS, map(vars, plan.tiers)), otherwise=lambda: plan_lines(plan))
        return ExitCode.OK
    set_up_home(home)

    def tell(outcome: Outcome) -> None:
        if invocation.columns is None:
            output.text(_outcome_line(outcome.node, outcome.outcome, outcome.reason))

    outcomes = bring_up(
        home,
        plan,
        options,
        wait=wait,
        deadline_s=deadline,
        lock_wait_s=lock_wait,
        progress=tell if wait else None,
    )
    if not wait:
        for outcome in outcomes:
            tell(outcome)
    invocation.listed((NODES, map(vars, outcomes)), otherwise=list)
    code = exit_code(outcomes)
    output.document(
        "k3ctl.pod-up/1",
        {"pod": plan.description.name, "nodes": [vars(outcome) for outcome in outcomes]},
    )
    if code is not ExitCode.OK:
        output.error(_pod_error(code, [item for item in outcomes if not item.well]))
    return code


@pod.command()
@click.option(
    "--deadline",
    type=Seconds(0.1),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a daemon may take to end before it is killed.",
)
@mutation_options(asks=lambda invocation, _: requests_under_way(invocation), lock_wait=LOCK_WAIT)
@columns_options(NODES)
@home_options
@json_option
@click.pass_obj
def down(invocation: Invocation, deadline: float, lock_wait: float) -> int:
    """End every daemon of the home. Nothing running is fine.

    Requests that are being answered are lost: with any, it asks first, or wants --yes where
    nobody can be asked.
    """
    from k3ctl.client.take_down import Departure, take_down

    output = invocation.output

    def tell(departure: Departure) -> None:
        if invocation.columns is None:
            output.text(_outcome_line(departure.node, departure.outcome, departure.reason))

    departures = take_down(
        invocation.home, deadline_s=deadline, lock_wait_s=lock_wait, progress=tell
    )
    nothing = [] if departures else [f"no pod runs in {invocation.home}"]
    invocation.listed((NODES, map(vars, departures)), otherwise=lambda: nothing)
    output.document("k3ctl.pod-down/1", {"nodes": [vars(departure) for departure in departures]})
    failed = [departure for departure in departures if departure.outcome == "failed"]
    if not failed:
        return ExitCode.OK
    code = ExitCode.PARTIAL if len(failed) < len(departures) else ExitCode.FAILED
    output.error(_pod_error(code, failed))
    return code


def requests_under_way(invocation: Invocation) -> str | None:
    """What taking the pod down now would end; None for nothing, or where it cannot be told."""
    from k3ctl.client.quick_get import quick_get

    document = quick_get(invocation.home, "/status", "k3d.status/1", timeout_s=ANSWER_S) or {}
    requests = document.get("requests") or {}
    number = int(requests.get("running") or 0) + int(requests.get("waiting") or 0)
    many = "s that are" if number > 1 else " that is"
    return f"ends {number} request{many} being answered" if number else None


def _outcome_line(node: str, outcome: str, reason: str | None) -> str:
    return f"{node:12} {outcome}" + (f": {without_name(node, reason)}" if reason else "")


def _pod_error(code: ExitCode, bad: list) -> K3Error:
    """One sentence for the nodes that are not well."""
    listed = together((item.node, item.reason or item.outcome) for item in bad)
    error = K3Error(listed, hint="see: k3ctl logs; then k3ctl pod up again, or k3ctl pod down")
    error.code = code
    error.retryable = code is ExitCode.TIMEOUT
    return error
