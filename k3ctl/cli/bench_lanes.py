"""k3ctl bench lanes and k3ctl bench prompt."""

from __future__ import annotations

from typing import Any

import click

from k3ctl.cli.bench_show import Numbers, median_s, milliseconds, number, of_answers, run_bench
from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.plot_text import plot
from k3ctl.cli.table import Column, Columns, count, table
from k3ctl.client.bench_lanes import bench_lanes, bench_prompt

LANES = Columns("points", (Column("lanes", "lanes", right=True), *of_answers()))
PROMPTS = Columns(
    "points",
    (
        Column("prompt_tokens", "prompt_tokens", count, right=True),
        Column("cache", "cache"),
        median_s("ttft_s"),
        Column("tokens_per_s", "tokens_per_s", number, right=True),
        Column("cached_tokens", "cached_tokens", count, right=True),
    ),
)


@click.command("lanes")
@click.option(
    "--lanes",
    type=Numbers(1, 1024),
    default="1,2,4,8,16",
    show_default=True,
    metavar="N,N...",
    help="Requests at once.",
)
@click.option(
    "--tokens",
    type=click.IntRange(2, 100_000),
    default=32,
    show_default=True,
    help="Tokens that every lane writes.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Rounds of each."
)
@columns_options(LANES)
@home_options
@json_option
@click.pass_obj
def lanes(invocation: Invocation, lanes: tuple[int, ...], tokens: int, rounds: int) -> None:
    """Tokens a second of a user and of all, by lanes, plain and drafted.

    Asks the running pod.
    """
    run_bench(
        invocation,
        "lanes",
        lambda station, held_out, progress: bench_lanes(
            station,
            held_out,
            lanes=lanes,
            tokens=tokens,
            rounds=rounds,
            progress=progress,
        ),
        _lanes_report,
        lambda figures: plot(
            _by(figures, "decoding", "lanes", "tokens_per_s_total"), "lanes", "tokens/s of all"
        ),
        LANES,
    )


@click.command("prompt")
@click.option(
    "--lengths",
    type=Numbers(1, 2**20),
    default="16,64,128,256,512,1024",
    show_default=True,
    metavar="N,N...",
    help="Tokens of the prompts.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=2, show_default=True, help="Rounds of each."
)
@columns_options(PROMPTS)
@home_options
@json_option
@click.pass_obj
def prompt(invocation: Invocation, lengths: tuple[int, ...], rounds: int) -> None:
    """Tokens of a prompt a second by its length, cold and with its prefix kept.

    Asks the running pod for one token behind every prompt.
    """
    run_bench(
        invocation,
        "prompt",
        lambda station, held_out, progress: bench_prompt(
            station, held_out, lengths=lengths, rounds=rounds, progress=progress
        ),
        _prompt_report,
        lambda figures: plot(
            _by(figures, "cache", "prompt_tokens", "tokens_per_s"), "tokens", "prompt tokens/s"
        ),
        PROMPTS,
    )


def _lanes_report(figures: dict[str, Any]) -> list[str]:
    rows = [
        [
            str(p["lanes"]), p["decoding"], number(p["tokens_per_s_user"]),
            number(p["tokens_per_s_total"]), milliseconds(p["ttft_s"]["p50"]),
            milliseconds(p["tpot_s"]["p50"]), number(p["acceptance_length"], 2),
        ]
        for p in figures["points"]
    ]  # fmt: skip
    headers = ["LANES", "DECODING", "A USER", "ALL", "TTFT", "TPOT", "ACCEPTED"]
    return [*table(headers, rows, "rlrrrrr"), "speeds in tokens/s, times are medians"]


def _prompt_report(figures: dict[str, Any]) -> list[str]:
    rows = [
        [
            count(p["prompt_tokens"]), p["cache"], milliseconds(p["ttft_s"]["p50"]),
            number(p["tokens_per_s"]), count(p["cached_tokens"]),
        ]
        for p in figures["points"]
    ]  # fmt: skip
    return table(["TOKENS", "PREFIX CACHE", "TTFT", "TOKENS/S", "REUSED"], rows, "rlrrr")


def _by(figures: dict[str, Any], name: str, x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """Points by the value of `name`; those without a figure are left out."""
    series: dict[str, list[tuple[float, float]]] = {}
    for point in figures["points"]:
        if point[y] is not None:
            series.setdefault(point[name], []).append((point[x], point[y]))
    return series
