"""What every bench of the running pod does: ask, keep a receipt, show table, JSON and plot."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import click

from k3ctl.cli import output as streams
from k3ctl.cli.kept import keep
from k3ctl.cli.options import Invocation
from k3ctl.cli.progress import Progress
from k3ctl.cli.table import Column, Columns, wrapped
from k3ctl.client.daemon import Daemon
from k3ctl.client.environment import environment_of
from k3ctl.client.held_out import HeldOut, read_held_out
from k3d.counted import counted

ANSWER_S = 600.0
Figures = dict[str, Any]
Measure = Callable[[Daemon, HeldOut, Progress], Figures]


class Numbers(click.ParamType):
    """Whole numbers between bounds, separated by commas, in order and each once."""

    name = "numbers"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers = []
        for word in str(value).split(","):
            # Short enough to be one: Python refuses to read numbers of thousands of digits.
            word = word.strip()
            number = int(word) if word.isdecimal() and len(word) < 9 else self.least - 1
            if not self.least <= number <= self.most:
                self.fail(
                    f"{word[:40]!r} is no number from {self.least} to {self.most}.", param, ctx
                )
            numbers.append(number)
        return tuple(sorted(set(numbers)))


def run_bench(
    invocation: Invocation,
    name: str,
    measure: Measure,
    report: Callable[[Figures], list[str]],
    draw: Callable[[Figures], list[str]],
    points: Columns,
) -> None:
    """Measure through the running Station and show it. The plot is for terminals only.

    `points` are the columns of the figures' points, for -H, -p and -o.
    """
    output = invocation.output
    with Daemon.station_of(invocation.home, timeout_s=ANSWER_S) as station:
        environment = environment_of(station.status())
        held_out = read_held_out(invocation.home, station)
        with Progress(output) as progress:
            figures = measure(station, held_out, progress)
    receipt_id = keep(invocation, f"bench-{name}", figures, environment)
    document = {**figures, "environment": environment, "receipt": receipt_id}
    output.document(f"k3ctl.bench-{name}/1", document)
    label = _label(figures, environment, receipt_id)
    invocation.listed(
        (points, _points(figures)),
        otherwise=lambda: _lines(figures, report(figures), draw, label),
    )


def _points(figures: Figures) -> list[Figures]:
    """The points measured; of decode those of the passes."""
    return figures.get("points") or figures["pass"]["points"]


def _lines(
    figures: Figures, report: list[str], draw: Callable[[Figures], list[str]], label: str
) -> list[str]:
    plot = ["", *draw(figures)] if streams.stdout_is_terminal() else []
    defined = [wrapped(f"{metric}: {what}") for metric, what in figures["definitions"].items()]
    return [*report, *plot, "", *wrapped(label), *itertools.chain(*defined)]


def _label(figures: Figures, environment: Figures, receipt_id: str | None) -> str:
    synthetic = figures["synthetic_acceptance"]
    made_up = "" if synthetic is None else f"; SYNTHETIC ACCEPTANCE of {synthetic:g}: no model's"
    simulated = ", simulated tiers" if environment["simulated"] else ""
    kept = f"; receipt {receipt_id}" if receipt_id else ""
    sparks, cores = counted(environment["sparks"], "spark"), counted(environment["cores"], "core")
    return (
        f"{figures['provenance']} through {figures['measured_through']}{made_up}; pod "
        f"{environment['pod']}, {sparks} over {environment['transport']}"
        f"{simulated}; {cores}, load {environment['load_1m']}; prompts from "
        f"{figures['prompts_from']}{kept}"
    )


def median_s(name: str) -> Column:
    """The median of times in seconds, shown in milliseconds."""
    return Column(name, lambda point: point[name]["p50"], milliseconds, right=True)


def of_answers() -> tuple[Column, ...]:
    """Columns that points of whole answers have."""
    return (
        Column("decoding", "decoding"),
        Column("tokens_per_s_user", "tokens_per_s_user", number, right=True),
        Column("tokens_per_s_total", "tokens_per_s_total", number, right=True),
        median_s("ttft_s"),
        median_s("tpot_s"),
        Column("acceptance_length", "acceptance_length", number, right=True),
    )


def number(value: float | None, digits: int = 1) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:,.0f} ms"
