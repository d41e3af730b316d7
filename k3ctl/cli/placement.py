"""k3ctl placement: plan where experts live, see what it costs, measure what tiers cost. The verbs
that change the map in force are in placement_swap.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from k3ctl.cli.lazy import NounGroup
from k3ctl.cli.options import (
    ELSE,
    Invocation,
    Real,
    columns_options,
    home_options,
    json_option,
    mutation_options,
)
from k3ctl.cli.placement_columns import PLANNED, SIMULATED
from k3ctl.cli.placement_drift import drift
from k3ctl.cli.placement_swap import abort, replace, rollback, status, swap
from k3d.errors import K3Error

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

SHOWN_TOKENS = 20_000
"""Of a trace that is longer, as many are replayed to show what a plan costs."""


@click.group(cls=NounGroup)
def placement() -> None:
    """Plan where experts live, see what it costs, and swap it under traffic."""


for _verb in (swap, status, abort, rollback, replace, drift):
    placement.add_command(_verb)


def _pod_options(command: Decorated) -> Decorated:
    """--pod, --trace and --experts."""
    for option in (
        click.option(
            "--pod",
            metavar="NAME|FILE",
            help=f"Whose slots; {ELSE}.",
        ),
        click.option("--trace", required=True, metavar="FILE", help="What tokens chose."),
        click.option(
            "--spark-experts",
            "cut",
            type=click.Choice(["sliced", "whole"]),
            default="sliced",
            show_default=True,
            help="How the sparks hold experts; a pod serves slices.",
        ),
    ):
        command = option(command)
    return command


@placement.command("plan")
@click.option("--policy", required=True, metavar="NAME|FILE", help="From policies/placement.")
@_pod_options
@click.option("--out", metavar="FILE", help="Write the map there; its name ends in .json.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the optimiser."
)
@columns_options(PLANNED)
@home_options
@json_option
@click.pass_obj
def plan_(
    invocation: Invocation,
    policy: str,
    pod: str | None,
    trace: str,
    cut: Any,
    out: str | None,
    seed: int,
) -> None:
    """Plan a placement map from a trace.

    Nothing is moved: serve the map with placement swap MAP.json, or pod up --placement MAP.json.
    """
    from k3ctl.cli.numpy_extra import require_numpy

    require_numpy()
    from k3ctl.cli.placement_text import plan_document, plan_lines
    from k3ctl.client.placement_inputs import read_inputs, write_map
    from k3d.placement.planners import PlanRequest, make_plan
    from k3d.placement.policy import load_policy
    from k3d.placement.simulator import simulate

    home = invocation.home
    chosen = load_policy(policy, home)
    inputs = read_inputs(home, pod, trace, cut)
    made = make_plan(PlanRequest(chosen, inputs.trace, inputs.slots, inputs.costs, seed))
    sample = inputs.trace.sampled(SHOWN_TOKENS)
    figures = simulate(made.placed, sample, inputs.costs, rows=chosen.rows, by_rows=False)
    if out is not None:
        write_map(Path(out), made.placed)
    document = plan_document(inputs, chosen, made, figures, out)
    invocation.output.document("k3ctl.placement-plan/1", document)
    invocation.listed(
        (PLANNED, [asdict(tier) for tier in figures.tiers]),
        otherwise=lambda: plan_lines(inputs, chosen, made, figures, out),
    )


@placement.command("simulate")
@click.argument("maps", nargs=-1, required=True, metavar="MAP...")
@_pod_options
@click.option(
    "--rows",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Rows of a pass: a token and its drafts.",
)
@click.option(
    "--station-us",
    type=Real(0, 1e9),
    metavar="US",
    help="The Station's own time a layer; gives tokens/s.",
)
@columns_options(SIMULATED)
@home_options
@json_option
@click.pass_obj
def simulate_(
    invocation: Invocation,
    maps: tuple[str, ...],
    pod: str | None,
    trace: str,
    cut: Any,
    rows: int,
    station_us: float | None,
) -> None:
    """Replay a trace on maps and compare what a token takes.

    MAP is a map's file (.json) or a policy, which is then planned from the trace.
    """
    from k3ctl.cli.numpy_extra import require_numpy

    require_numpy()
    from k3ctl.cli.simulate_text import simulate_document, simulate_lines
    from k3ctl.client.placement_inputs import map_or_policy, read_inputs
    from k3d.placement.simulator import simulate

    inputs = read_inputs(invocation.home, pod, trace, cut)
    found = []
    for name in maps:
        placed = map_or_policy(invocation.home, name, inputs)
        found.append((name, simulate(placed, inputs.trace, inputs.costs, rows=rows)))
    document = simulate_document(inputs, found, station_us)
    invocation.output.document("k3ctl.placement-simulate/1", document)
    invocation.listed(
        (SIMULATED, document["maps"]), otherwise=lambda: simulate_lines(inputs, found, station_us)
    )


@placement.command("measure")
@click.argument("pod", required=False, metavar="[POD]")
@click.option(
    "--tokens",
    type=click.IntRange(16, 100_000),
    default=256,
    show_default=True,
    help="Tokens a round.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Rounds of each."
)
@click.option("--transport", type=click.Choice(["shm", "tcp"]), help="To the sparks.")
@mutation_options()
@home_options
@json_option
@click.pass_obj
def measure(
    invocation: Invocation, pod: str | None, tokens: int, rounds: int, transport: str | None
) -> None:
    """Measure what each tier of an embedded pod costs a call and an expert.

    POD is a description, by name or file; else the pod that runs here, or embedded. Starts its own
    processes and ends them. The result is a receipt, which plan and simulate use.
    """
    from k3ctl.cli.bench import measure_with_k3d
    from k3ctl.cli.placement_text import measured_lines
    from k3ctl.client.pod_run import pod_meant
    from k3ctl.client.receipts import NewReceipt, keep_receipt
    from k3d.placement.costs import RECEIPT

    pod = pod_meant(invocation.home, pod)
    options = ["--pod", pod, "--tokens", str(tokens), "--rounds", str(rounds)]
    options += ["--transport", transport] if transport else []
    figures = measure_with_k3d(
        ["bench", "tiers", "--json", "--home", str(invocation.home), *options]
    )
    environment = figures.pop("environment", {})
    schema = str(figures.pop("schema", "k3d.bench-tiers/1"))
    command = " ".join(["k3ctl placement measure", pod, *options[2:]])
    provenance = str(figures.get("provenance", "measured"))
    receipt_id = None
    try:
        receipt_id = keep_receipt(
            invocation.home, NewReceipt(RECEIPT, provenance, command, figures, environment)
        )
    except K3Error as error:
        invocation.output.note(f"the receipt was not kept: {error.message}")
    kept = {**figures, "environment": environment, "receipt": receipt_id}
    invocation.output.document(schema, kept)
    invocation.output.lines(measured_lines(figures, receipt_id))
