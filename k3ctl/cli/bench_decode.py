"""k3ctl bench decode: plain against drafted, and what a pass costs."""

from __future__ import annotations

from typing import Any

import click

from k3ctl.cli.bench_show import milliseconds, number, run_bench
from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.plot_text import plot
from k3ctl.cli.table import Column, Columns, count, percent, table
from k3ctl.client.bench_decode import bench_decode

PASSES = Columns(
    "passes",
    (
        Column("rows", "rows", number, right=True),
        Column("pass_ms", "pass_ms", number, right=True),
    ),
)


@click.command("decode")
@click.option(
    "--prompts", type=click.IntRange(1, 10_000), default=8, show_default=True, help="Questions."
)
@click.option(
    "--tokens",
    type=click.IntRange(2, 100_000),
    default=64,
    show_default=True,
    help="Longest answer, in tokens.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Rounds of both sides, in turns; the medians are shown.",
)
@columns_options(PASSES)
@home_options
@json_option
@click.pass_obj
def decode(invocation: Invocation, prompts: int, tokens: int, rounds: int) -> None:
    """Compare plain with drafted decoding, question by question in turns.

    Asks the running pod. Shows tokens a second of both sides, how often each draft of a block is
    kept, and what a pass costs by its rows, with the line through it.
    """
    run_bench(
        invocation,
        "decode",
        lambda station, held_out, progress: bench_decode(
            station,
            held_out,
            prompts=prompts,
            tokens=tokens,
            rounds=rounds,
            progress=progress,
        ),
        _report,
        _draw,
        PASSES,
    )


def _report(figures: dict[str, Any]) -> list[str]:
    speeds, costs = figures["tokens_per_s"], figures["pass"]
    rows = [
        [
            side, number(speed), milliseconds(figures["times"][side]["ttft_s"]["p50"]),
            milliseconds(figures["times"][side]["tpot_s"]["p50"]),
        ]
        for side, speed in speeds.items()
    ]  # fmt: skip
    lines = table(["DECODING", "TOKENS/S", "TTFT", "TPOT"], rows, "lrrr")
    if figures["ratio"] is not None:
        lines.append(f"drafted over plain {figures['ratio']:.2f}")
    if figures["acceptance_length"] is not None:
        lines.append(f"acceptance length {figures['acceptance_length']:.2f}")
    if figures["acceptance_by_position"]:
        kept = [
            [str(each["draft"]), count(each["verified"]), percent(each["share"])]
            for each in figures["acceptance_by_position"]
        ]
        lines += ["", *table(["DRAFT", "VERIFIED", "KEPT"], kept, "rrr")]
    points = [[number(p["rows"], 2), f"{p['pass_ms']:.1f} ms"] for p in costs["points"]]
    lines += ["", *table(["ROWS", "PASS"], points, "rr")] if points else [""]
    if costs["fit"] is not None:
        fit = costs["fit"]
        lines.append(
            f"pass(r) = {fit['fixed_ms']:.1f} + {fit['row_ms']:.2f} r ms through the points "
            f"({fit['provenance']}; at most {percent(fit['worst_error'])} off)"
        )
    own = costs["engine_line"]
    if own["measured"]:
        lines.append(
            f"pass(r) = {own['fixed_ms']:.1f} + {own['row_ms']:.2f} r ms as the engine goes by it"
        )
    if costs["draft_block_ms"] is not None:
        lines.append(f"a block of drafts takes {costs['draft_block_ms']:.1f} ms")
    return lines


def _draw(figures: dict[str, Any]) -> list[str]:
    costs = figures["pass"]
    points = [(p["rows"], p["pass_ms"]) for p in costs["points"]]
    fit = costs["fit"]
    most = max((x for x, _ in points), default=0.0)
    line = [] if fit is None else [
        (x, fit["fixed_ms"] + fit["row_ms"] * x) for x in (most * i / 50 for i in range(51))
    ]  # fmt: skip
    return plot({"the line": line, "measured": points}, "rows", "ms a pass")
