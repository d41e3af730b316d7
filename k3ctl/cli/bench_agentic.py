"""k3ctl bench agentic: conversations of many turns behind one long history."""

from __future__ import annotations

from typing import Any

import click

from k3ctl.cli.bench_show import Numbers, milliseconds, number, of_answers, run_bench
from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.plot_text import plot
from k3ctl.cli.table import Column, Columns, percent, table
from k3ctl.client.bench_agentic import Workload, bench_agentic
from k3d.counted import counted

POINTS = Columns(
    "points",
    (
        Column("users", "users", right=True),
        Column("cache", "cache"),
        *of_answers(),
        Column("cached_share", "cached_share", percent, right=True),
    ),
)
CACHES = {"on": (True,), "off": (False,), "both": (True, False)}


@click.command("agentic")
@click.option(
    "--users", type=Numbers(1, 1024), default="1,4", show_default=True, metavar="N,N...",
    help="Conversations at once.",
)  # fmt: skip
@click.option(
    "--turns", type=click.IntRange(1, 1000), default=10, show_default=True,
    help="Turns of a conversation.",
)  # fmt: skip
@click.option(
    "--history", type=click.IntRange(1, 2**20), default=600, show_default=True,
    help="Tokens that all conversations begin with.",
)  # fmt: skip
@click.option(
    "--turn-tokens", type=click.IntRange(1, 2**20), default=60, show_default=True,
    help="Tokens added every turn.",
)  # fmt: skip
@click.option(
    "--answer-tokens", type=click.IntRange(2, 2**20), default=24, show_default=True,
    help="Tokens of every answer.",
)  # fmt: skip
@click.option(
    "--cache", type=click.Choice(list(CACHES)), default="both", show_default=True,
    help="With the prefix cache, without, or both.",
)  # fmt: skip
@columns_options(POINTS)
@home_options
@json_option
@click.pass_obj
def agentic(
    invocation: Invocation,
    users: tuple[int, ...],
    turns: int,
    history: int,
    turn_tokens: int,
    answer_tokens: int,
    cache: str,
) -> None:
    """Speed of a user against speed of all in long conversations.

    Takes some minutes, most of them without the prefix cache (--cache on leaves that out).
    Asks the running pod. Every conversation begins with the same history, every turn adds text,
    and answers go into the next turn as the model wrote them. The defaults are for a context of
    2,048 tokens.
    """
    workload = Workload(history, turn_tokens, answer_tokens, turns)
    run_bench(
        invocation,
        "agentic",
        lambda station, held_out, progress: bench_agentic(
            station,
            held_out,
            workload,
            users=users,
            caches=CACHES[cache],
            progress=progress,
        ),
        _report,
        _draw,
        POINTS,
    )


def _report(figures: dict[str, Any]) -> list[str]:
    best = set(figures["frontier"])
    rows = [
        [
            str(p["users"]), _cache(p), p["decoding"], number(p["tokens_per_s_user"]),
            number(p["tokens_per_s_total"]), milliseconds(p["ttft_s"]["p50"]),
            milliseconds(p["tpot_s"]["p50"]), number(p["acceptance_length"], 2),
            percent(p["cached_share"]), "*" if index in best else "",
        ]
        for index, p in enumerate(figures["points"])
    ]  # fmt: skip
    headers = ["USERS", "CACHE", "DECODING", "A USER", "ALL", "TTFT", "TPOT", "ACC.", "REUSED", ""]
    work = figures["workload"]
    return [
        *table(headers, rows, "rllrrrrrrl"),
        "speeds in tokens/s, times are medians, * is on the frontier",
        f"{counted(work['turns'], 'turn')} of {work['turn']} + {work['answer']} tokens behind "
        f"{work['history']}",
    ]


def _draw(figures: dict[str, Any]) -> list[str]:
    series: dict[str, list[tuple[float, float]]] = {}
    for point in figures["points"]:
        if point["tokens_per_s_user"] and point["tokens_per_s_total"]:
            name = f"{point['decoding']}, cache {_cache(point)}"
            series.setdefault(name, []).append(
                (point["tokens_per_s_user"], point["tokens_per_s_total"])
            )
    return plot(series, "tokens/s a user", "tokens/s of all")


def _cache(point: dict[str, Any]) -> str:
    return "on" if point["cache"] else "off"
