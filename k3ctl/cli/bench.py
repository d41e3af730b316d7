"""k3ctl bench: measurements that k3d makes; k3ctl asks for them and shows them."""

from __future__ import annotations

import subprocess
from typing import Any

import click
import msgspec

from k3ctl.cli.lazy import LazyGroup, Verb
from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.table import Column, Columns, duration_us, table
from k3ctl.client.daemon_log import last_sentence
from k3ctl.client.processes import daemon_command
from k3ctl.client.receipts import NewReceipt, keep_receipt
from k3d.counted import counted
from k3d.errors import ExitCode, K3Error

VERBS = {
    "pod": Verb(
        "k3ctl.cli.bench", "bench_pod", "Compare sparks as processes with all in one process."
    ),
    "decode": Verb("k3ctl.cli.bench_decode", "decode", "Compare plain with drafted decoding."),
    "lanes": Verb("k3ctl.cli.bench_lanes", "lanes", "Decode for several users at once."),
    "prompt": Verb("k3ctl.cli.bench_lanes", "prompt", "Prompts by their length."),
    "agentic": Verb("k3ctl.cli.bench_agentic", "agentic", "Long conversations of many turns."),
}


SIDES = Columns(
    "sides",
    (
        Column("side", "side"),
        Column("tokens_per_s", "tokens_per_s", right=True),
        Column("ratio", "ratio", right=True),
    ),
)
HOPS = Columns(
    "hops",
    (
        Column("tier", "tier"),
        Column("side", "side"),
        Column("hop_p50", "p50", duration_us, right=True),
        Column("hop_p99", "p99", duration_us, right=True),
    ),
)


@click.group(cls=LazyGroup, verbs=VERBS)
def bench() -> None:
    """Measure the pod.

    pod makes a pod of its own; the others ask the one that runs, as a user does. Results are kept
    as receipts in state.db.
    """


@click.command("pod")
@click.argument("pod", metavar="[POD]", default="embedded")
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Tokens decoded a prompt.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Rounds of each side, in turns; the medians are shown.",
)
@click.option("--transport", type=click.Choice(["shm", "tcp"]), help="Of the spark processes.")
@click.option("--placement", metavar="NAME|FILE", help="Placement policy.")
@columns_options(SIDES, HOPS)
@home_options
@json_option
@click.pass_obj
def bench_pod(
    invocation: Invocation,
    pod: str,
    tokens: int,
    rounds: int,
    transport: str | None,
    placement: str | None,
) -> None:
    """Decode over spark processes, and with the same engine in one process.

    POD is a description, by name or file; embedded by default. Starts its own processes and ends
    them; a pod that runs meanwhile shares the cores and makes the figures worse. The result is kept
    as a receipt in state.db.
    """
    options = ["--pod", pod, "--tokens", str(tokens), "--rounds", str(rounds)]
    options += ["--transport", transport] if transport else []
    options += ["--placement", placement] if placement else []
    figures = measure_with_k3d(["bench", "pod", "--json", "--home", str(invocation.home), *options])
    environment = figures.pop("environment", {})
    output = invocation.output
    receipt = NewReceipt(
        kind="bench-pod",
        provenance=str(figures.get("provenance", "measured")),
        command=" ".join(["k3ctl bench pod", pod, *options[2:]]),
        figures=figures,
        environment=environment,
    )
    receipt_id = None
    try:
        receipt_id = keep_receipt(invocation.home, receipt)
    except K3Error as error:
        output.note(f"the receipt was not kept: {error.message}")
    schema = str(figures.pop("schema", "k3d.bench-pod/1"))
    output.document(schema, {**figures, "environment": environment, "receipt": receipt_id})
    rates, ratios = figures["tokens_per_s"], figures["ratio"]
    sides = [
        {"side": side, "tokens_per_s": rate, "ratio": ratios.get(side)}
        for side, rate in rates.items()
    ]
    invocation.listed(
        (SIDES, sides), (HOPS, _hops(figures)), otherwise=lambda: _report(figures, receipt_id)
    )


def measure_with_k3d(arguments: list[str]) -> dict[str, Any]:
    """Run k3d with a bench's arguments; the document it printed. Raises K3Error with its words."""
    try:
        done = subprocess.run(
            [*daemon_command(), *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise K3Error(
            f"k3d cannot be started: {error.strerror}",
            hint="install the node extra: pip install 'k3pod[node]'",
        ) from error
    if done.returncode != 0:
        raise _failure(" ".join(arguments[:2]), done)
    try:
        return msgspec.json.decode(done.stdout, type=dict)
    except msgspec.MsgspecError as error:
        raise K3Error(
            f"k3d {' '.join(arguments[:2])} did not answer with one JSON document"
        ) from error


def _report(figures: dict[str, Any], receipt_id: str | None) -> list[str]:
    """Tokens a second by side, then hops by tier and side."""
    rates, ratios = figures["tokens_per_s"], figures["ratio"]
    over = next(iter(rates))
    rows = [
        [side, f"{rate:.1f}", f"{ratios[side]:.2f}" if side in ratios else "1.00"]
        for side, rate in rates.items()
    ]
    lines = table(["SIDE", "TOKENS/S", f"{over.upper()} / SIDE"], rows, "lrr")
    lines += ["", *HOPS.lines(_hops(figures)), ""]
    label = f"{figures['provenance']}; pod {figures['pod']}, {counted(figures['sparks'], 'spark')}"
    simulated = ", simulated tiers" if figures["simulated"] else ""
    kept = f"; receipt {receipt_id}" if receipt_id else ""
    return [*lines, f"{label}{simulated}, same tokens on every side{kept}"]


def _hops(figures: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"tier": tier, "side": side, **hop}
        for side, tiers in figures["hop_us"].items()
        for tier, hop in tiers.items()
        if hop is not None
    ]


def _failure(what: str, done: subprocess.CompletedProcess[str]) -> K3Error:
    words = last_sentence(done.stderr) or "it said nothing"
    error = K3Error(f"k3d {what} failed: {words}", hint="see: k3ctl logs")
    known = done.returncode in set(ExitCode)
    error.code = ExitCode(done.returncode) if known and done.returncode else ExitCode.FAILED
    return error
