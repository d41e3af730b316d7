"""What every bench of the running pod does: ask, keep a receipt, show table, JSON and plot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from k3ctl.cli import output as streams
from k3ctl.cli.kept import keep
from k3ctl.cli.options import Invocation
from k3ctl.cli.progress import Progress
from k3ctl.cli.table import wrapped
from k3ctl.client.daemon import Daemon
from k3ctl.client.environment import environment_of
from k3ctl.client.held_out import HeldOut, read_held_out

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
) -> None:
    """Measure through the running Station and show it. The plot is for terminals only."""
    output = invocation.output
    with Daemon.station_of(invocation.home, timeout_s=ANSWER_S) as station:
        environment = environment_of(station.status())
        held_out = read_held_out(invocation.home, station)
        with Progress(output) as progress:
            figures = measure(station, held_out, progress)
    receipt_id = keep(invocation, f"bench-{name}", figures, environment)
    document = {**figures, "environment": environment, "receipt": receipt_id}
    output.document(f"k3ctl.bench-{name}/1", document)
    output.lines(report(figures))
    if output.text_wanted and streams.stdout_is_terminal():
        output.text()
        output.lines(draw(figures))
    output.text()
    output.lines(wrapped(_label(figures, environment, receipt_id)))
    for metric, meaning in figures["definitions"].items():
        output.lines(wrapped(f"{metric}: {meaning}"))


def _label(figures: Figures, environment: Figures, receipt_id: str | None) -> str:
    synthetic = figures["synthetic_acceptance"]
    made_up = "" if synthetic is None else f"; SYNTHETIC ACCEPTANCE of {synthetic:g}: no model's"
    simulated = ", simulated tiers" if environment["simulated"] else ""
    kept = f"; receipt {receipt_id}" if receipt_id else ""
    return (
        f"{figures['provenance']} through {figures['measured_through']}{made_up}; pod "
        f"{environment['pod']}, {environment['sparks']} sparks over {environment['transport']}"
        f"{simulated}; {environment['cores']} cores, load {environment['load_1m']}; prompts from "
        f"{figures['prompts_from']}{kept}"
    )


def number(value: float | None, digits: int = 1) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:,.0f} ms"
