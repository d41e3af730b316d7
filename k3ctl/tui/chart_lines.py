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


@dataclass(frozen=True)
class Figure:
    """Something to chart: its title, its unit, and its curves from the trail."""

    title: str
    unit: str
    series: Callable[[Trail], Mapping[str, Points]]


def _pod(figure: str, scale: float = 1.0) -> Callable[[Trail], Points]:
    def points(trail: Trail) -> Points:
        return scaled(trail.points(figure), scale)

    return points


def scaled(points: Points, scale: float) -> Points:
    return [(at, None if value is None else value * scale) for at, value in points]


def _tier_hops(figure: str) -> Callable[[Trail], Mapping[str, Points]]:
    def series(trail: Trail) -> Mapping[str, Points]:
        return {tier: scaled(trail.tier_points(tier, figure), 1e-3) for tier in trail.tiers()}

    return series


FIGURES: tuple[Figure, ...] = (
    Figure("Decoding", "tokens/s", lambda t: {"decode": _pod("decode_tokens_per_s")(t)}),
    Figure(
        "Time between tokens",
        "ms",
        lambda t: {"p50": _pod("token_p50_us", 1e-3)(t), "p99": _pod("token_p99_us", 1e-3)(t)},
    ),
    Figure("Hop p99 of each tier", "ms", _tier_hops("p99")),
    Figure("Hop p50 of each tier", "ms", _tier_hops("p50")),
    Figure("Acceptance", "tokens a round", lambda t: {"accepted": _pod("acceptance_length")(t)}),
    Figure("Reading prompts", "tokens/s", lambda t: {"prompt": _pod("prompt_tokens_per_s")(t)}),
    Figure("Power of the nodes that report it", "W", lambda t: {"power": _pod("power_w")(t)}),
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
