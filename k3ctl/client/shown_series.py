"""A chart as it is drawn: in the unit that reads best, with as many lines as can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from k3ctl.charts.panels import Panel
from k3ctl.charts.picture import Picture
from k3ctl.client.moments import local
from k3ctl.client.series import Chart, History

MOST_LINES = 7
MOST_NAMES = 4


@dataclass(frozen=True)
class ShownChart:
    """A panel, and how many series it leaves out."""

    panel: Panel
    left_out: int


def shown_chart(chart: Chart) -> ShownChart:
    """Microseconds become ms or s where that reads better. Of many series the largest are kept."""
    lines = list(chart.series)
    left_out = max(0, len(lines) - MOST_LINES)
    if left_out:
        largest = sorted(lines, key=lambda line: -max(line.known, default=float("-inf")))
        kept = {id(line) for line in largest[:MOST_LINES]}
        lines = [line for line in lines if id(line) in kept]
    unit, one = _unit(chart)
    series = {
        line.name: [(at, None if value is None else value / one) for at, value in line.points]
        for line in lines
    }
    label = chart.title
    if len(lines) == 1 and lines[0].name not in label:
        label += f" of {lines[0].name}"
    if unit != label:
        label += f", {unit}"
    return ShownChart(Panel(label, series, chart.from_zero), left_out)


def picture_of(history: History) -> Picture:
    """The charts that have figures, as a picture."""
    drawn = [shown_chart(chart).panel for chart in history.charts if chart.known]
    return Picture(
        title=title(history),
        footnote="; ".join([provenance(history), *left_out(history), *missing(history)]),
        panels=drawn,
        since_s=history.span.since_s,
        until_s=history.span.until_s,
        rules=[(mark.at_s, f"{local(mark.at_s)} {mark.label}") for mark in history.marks],
    )


def title(history: History) -> str:
    """The pod, what is shown and the span, on the local clock; that there is none before, if so."""
    since, until = local(history.span.since_s), local(history.span.until_s)
    if since[:10] == until[:10]:
        until = until[11:]
    told = f"{history.pod}: {history.what}, {since} to {until}"
    return f"{told}; nothing was recorded before" if history.cut else told


def provenance(history: History) -> str:
    """Where the figures come from and what a point stands for."""
    said = history.provenance
    if history.simulated:
        said += f"; simulated: {some(history.simulated)}"
    if history.bucket_s is not None:
        said += f"; a point is {history.bucket_s} s"
    return f"{said}; {history.definition}"


def missing(history: History) -> list[str]:
    """Why figures are not there, nodes with the same reason together."""
    sentences = []
    for chart in history.charts:
        by_reason: dict[str, list[str]] = {}
        for name, reason in chart.missing:
            by_reason.setdefault(reason, []).append(name)
        for reason, names in by_reason.items():
            sentences.append(f"no {chart.title} of {some(names)}: {reason}")
    return sentences


def left_out(history: History) -> list[str]:
    """Which charts show the largest series only."""
    sentences = []
    for chart in history.charts:
        shown = shown_chart(chart)
        if chart.known and shown.left_out:
            known = len(chart.series)
            sentences.append(
                f"{chart.title}: the {known - shown.left_out} largest of {known}; --node shows one"
            )
    return sentences


def some(names: Sequence[str]) -> str:
    """A few names, and how many more."""
    if len(names) <= MOST_NAMES + 1:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"


def _unit(chart: Chart) -> tuple[str, float]:
    if chart.unit != "us":
        return chart.unit, 1.0
    most = max((value for line in chart.series for value in line.known), default=0.0)
    if most < 1_000:
        return "us", 1.0
    return ("ms", 1e3) if most < 1e6 else ("s", 1e6)
