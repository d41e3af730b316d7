"""The big chart: a figure of the last ten minutes over the clock, in ink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from k3ctl.charts.axis import time_axis
from k3ctl.charts.line_chart import line_chart
from k3ctl.tui.ink import Ink, Line, Span, heading, line, quiet
from k3ctl.tui.marks import Marks
from k3ctl.tui.trail import Trail

Points = Sequence[tuple[float, float | None]]
SERIES_INKS: tuple[Ink, ...] = ("accent", "warn", "good", "rtx", "spark")
COLUMNS_A_TICK = 14
LEAST_SPAN_S = 60.0
_BEGIN, _END = "\x02", "\x03"

Curves = Callable[[Trail], Mapping[str, Points]]


@dataclass(frozen=True)
class Figure:
    """Something to chart: its title, its unit, and its curves from the trail."""

    title: str
    unit: str
    series: Curves


def _pod(scale: float = 1.0, **figures: str) -> Curves:
    """Curves of the pod's figures by the names they have in the chart."""

    def curves(trail: Trail) -> Mapping[str, Points]:
        return {name: scaled(trail.points(figure), scale) for name, figure in figures.items()}

    return curves


def scaled(points: Points, scale: float) -> Points:
    return [(at, None if value is None else value * scale) for at, value in points]


def _tier_hops(figure: str) -> Curves:
    def curves(trail: Trail) -> Mapping[str, Points]:
        return {tier: scaled(trail.tier_points(tier, figure), 1e-3) for tier in trail.tiers()}

    return curves


FIGURES: tuple[Figure, ...] = (
    Figure("Decoding", "tokens/s", _pod(decode="decode_tokens_per_s")),
    Figure("Time between tokens", "ms", _pod(1e-3, p50="token_p50_us", p99="token_p99_us")),
    Figure("Hop p99 of each tier", "ms", _tier_hops("p99")),
    Figure("Hop p50 of each tier", "ms", _tier_hops("p50")),
    Figure("Acceptance", "tokens a round", _pod(accepted="acceptance_length")),
    Figure("Reading prompts", "tokens/s", _pod(prompt="prompt_tokens_per_s")),
    Figure("Power of the nodes that report it", "W", _pod(power="power_w")),
)


def chart_lines(
    figure: Figure, trail: Trail, marks: Marks, width: int, height: int, note: Line = ()
) -> list[Line]:
    """A heading and the chart under it, `height` lines at most."""
    series = figure.series(trail)
    title = heading(f"{figure.title}, {figure.unit}", width, note, marks.rule)
    times = [at for points in series.values() for at, _ in points]
    known = any(value is not None for points in series.values() for _, value in points)
    if not known or height < 5:
        return [title, line(quiet("nothing in the last ten minutes"))][:height]
    first = min(min(times), max(times) - LEAST_SPAN_S)
    drawn = line_chart(
        series, width, height, x_label="", y_label="", ascii=marks.ascii, paint=_marked,
        x_axis=time_axis(first, max(times), max(2, width // COLUMNS_A_TICK)),
    )  # fmt: skip
    return [title, *(inked(each) for each in drawn[1:])]


def _marked(number: int, text: str) -> str:
    return f"{_BEGIN}{number}{text}{_END}"


def inked(text: str) -> Line:
    """A line of a chart as spans: what series drew in their inks, the rest quiet."""
    spans: list[Span] = []
    for piece in text.split(_BEGIN):
        drawn, end, rest = piece.partition(_END)
        if not end:
            _add(spans, piece, "quiet")
            continue
        _add(spans, drawn[1:], SERIES_INKS[int(drawn[0]) % len(SERIES_INKS)])
        _add(spans, rest, "quiet")
    return tuple(spans)


def _add(spans: list[Span], text: str, ink: Ink) -> None:
    if not text:
        return
    if spans and spans[-1].ink == ink:
        spans[-1] = Span(spans[-1].text + text, ink)
    else:
        spans.append(Span(text, ink))
