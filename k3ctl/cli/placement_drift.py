"""k3ctl placement drift: does the traffic still suit the map in force, and would replanning pay."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from k3ctl.cli.options import Invocation, Seconds, columns_options, home_options, json_option
from k3ctl.cli.placement_columns import SEEN
from k3d.errors import ConfigError, ExitCode, K3Error, NotFound

POLICY = "optimised"
DRIFT_FOUND = 20
"""Exit code, with --detailed-exitcode only."""


@click.command()
@click.argument("trace", required=False, metavar="[TRACE]")
@click.option(
    "--since",
    type=Seconds(1),
    metavar="SECONDS",
    help="Only the newest seconds of live traffic (else all that the map in force served).",
)
@click.option(
    "--policy",
    default=POLICY,
    show_default=True,
    metavar="NAME|FILE",
    help="How to plan anew, to see what that gains.",
)
@click.option("--out", metavar="FILE", help="Write the replanned map; its name ends in .json.")
@click.option(
    "--hot",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many experts count as hot (else a tenth of them).",
)
@click.option("--detailed-exitcode", is_flag=True, help="Exit code 20 when there is drift.")
@columns_options(SEEN)
@home_options
@json_option
@click.pass_obj
def drift(
    invocation: Invocation,
    trace: str | None,
    since: float | None,
    policy: str,
    out: str | None,
    hot: int | None,
    detailed_exitcode: bool,
) -> int:
    """Compare the traffic of a running pod, or a TRACE, with what its map was planned from.

    Shows how far apart they are and how much of that may be chance, what every tier takes and was
    meant to take, and what a map planned anew would gain (modelled). Changes nothing.
    """
    from k3ctl.cli.numpy_extra import require_numpy

    require_numpy()
    from k3ctl.cli.placement_drift_text import drift_document, drift_lines
    from k3ctl.client.drift_inputs import costs_for, find_gain, live, recorded
    from k3ctl.client.drift_steps import Look
    from k3ctl.client.map_in_force import read_in_force
    from k3ctl.client.next_command import at_home
    from k3ctl.client.placement_inputs import write_map
    from k3d.placement.alert_policy import drift_limits
    from k3d.placement.drift import find_drift
    from k3d.placement.drift_advice import advise
    from k3d.placement.population import planned_from

    if trace is not None and since is not None:
        raise ConfigError(
            "--since is of live traffic, and a trace was named", hint="give one of the two"
        )
    home = invocation.home
    in_force = read_in_force(home)
    seen = recorded(trace) if trace is not None else live(home, since)
    expected = planned_from(in_force.placed)
    limits = drift_limits(in_force.pod.alerts, home)
    found = find_drift(in_force.placed, expected, seen.population, limits=limits, hot=hot)
    gain = costs = unknown = None
    try:
        if found.verdict == "too-few" and found.tokens:
            raise K3Error("too few tokens were seen to plan from")
        costs = costs_for(home, in_force, seen)
        gain = find_gain(home, in_force, seen, policy, costs)
    except K3Error as error:
        unknown = error
    look = Look(home, trace, since, None if policy == POLICY else policy)
    replan, measure = look.replan, look.measure(in_force) if costs is None else None
    if out is not None and gain is None and found.tokens:
        raise unknown or K3Error("nothing was planned")
    if out is not None and gain is not None:
        write_map(Path(out), gain.placed)
        replan = at_home(f"k3ctl placement swap {shlex.quote(out)}", home)
    advice = advise(found, gain, replan, measure, look.ask)
    shown = (in_force, seen, expected, found, gain, costs, unknown, advice)
    document = drift_document(*shown)
    invocation.output.document("k3ctl.placement-drift/1", document)
    invocation.listed((SEEN, document["tiers"]), otherwise=lambda: drift_lines(*shown))
    if out is not None and gain is None:
        invocation.output.error(
            NotFound(
                f"{out} was not written: no token was seen to plan from",
                hint=f"give it some: {look.ask} --out {shlex.quote(out)}",
            )
        )
        return ExitCode.NOT_FOUND
    return DRIFT_FOUND if detailed_exitcode and found.verdict == "drift" else ExitCode.OK
