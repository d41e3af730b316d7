"""Several line charts over one x axis, one under the other, as small as they need to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3ctl.charts.axis import Axis, plain_axis, value_axis
from k3ctl.charts.canvas import Canvas, Paint
from k3ctl.charts.line_chart import (
    EMPTY,
    LEGEND_GAP,
    Points,
    beside,
    draw,
    drawable,
    legend,
    named,
    under,
)

LEAST_ROWS = 4
LEAST_WIDTH = 24


@dataclass(frozen=True)
class Panel:
    """One chart: its label with the unit, and series of (x, y). A series keeps its number, and so
    its mark, from panel to panel; one without any figure has no place in the legend. `from_zero`
    is for figures of which 0 is none: of degrees it is not."""

    label: str
    series: Mapping[str, Points]
    from_zero: bool = True


def panels(
    shown: Sequence[Panel],
    width: int,
    height: int,
    *,
    x_label: str,
    ascii: bool,  # noqa: A002 - what every caller calls it
    x_axis: Axis | None = None,
    rules: Sequence[float] = (),
    paint: Paint | None = None,
) -> list[str]:
    """Lines of at most `width` columns, 24 at least; about `height` of them, more when the panels
    have no room for four rows each. `rules` are values of x marked by a dotted upright."""
    width = max(LEAST_WIDTH, width)
    drawn = [{name: drawable(points) for name, points in panel.series.items()} for panel in shown]
    known = [_known(series) for series in drawn]
    xs = [x for points in known for x, _ in points]
    if not xs:
        return [f"{panel.label}: {EMPTY}"[:width].rstrip() for panel in shown]
    heads = [
        _head(panel, series, width, ascii, paint)
        for panel, series in zip(shown, drawn, strict=True)
    ]
    filled = sum(1 for points in known if points)
    room = height - 2 - sum(map(len, heads))
    rows = max(LEAST_ROWS, room // max(1, filled))
    axes = [
        value_axis([y for _, y in points], max(2, (rows + 1) // 2), from_zero=panel.from_zero)
        for panel, points in zip(shown, known, strict=True)
    ]
    margin = max(
        len(tick.label)
        for axis, points in zip(axes, known, strict=True)
        for tick in axis.ticks
        if points
    )
    margin = min(margin, width - 2 - LEAST_WIDTH // 2)
    across = width - margin - 2
    horizontal = x_axis or plain_axis(xs, max(2, across // 12))
    lines: list[str] = []
    without: list[str] = []
    for head, series, points, vertical in zip(heads, drawn, known, axes, strict=True):
        if not points:
            without += head
            continue
        lines += head
        canvas = draw(series, Canvas(across, rows, plain=ascii), horizontal, vertical)
        for at in rules:
            if horizontal.first <= at <= horizontal.last:
                canvas.rule(round(horizontal.share(at) * (canvas.dots_wide - 1)))
        lines += beside(canvas.rows(paint), vertical, margin, ascii)
    return [*lines, *under(horizontal, margin, across, x_label, ascii), *without]


def _known(series: Mapping[str, list[tuple[float, float | None]]]) -> list[tuple[float, float]]:
    return [(x, y) for points in series.values() for x, y in points if y is not None]


def _head(
    panel: Panel,
    series: Mapping[str, list[tuple[float, float | None]]],
    width: int,
    plain: bool,
    paint: Paint | None,
) -> list[str]:
    """The label, with the legend beside it where that fits, else below it."""
    numbered = [
        (number, name)
        for number, (name, points) in enumerate(series.items())
        if any(y is not None for _, y in points)
    ]
    if not numbered:
        return [f"{panel.label}: {EMPTY}"[:width].rstrip()]
    label = panel.label[:width].rstrip()
    if len(series) < 2:
        return [label]
    beside_it = LEGEND_GAP.join(name for _, name in numbered)
    if len(label) + 2 * len(numbered) + len(beside_it) + 2 * len(LEGEND_GAP) <= width:
        keys = LEGEND_GAP.join(named(number, name, plain, paint) for number, name in numbered)
        return [f"{label}{2 * LEGEND_GAP}{keys}"]
    return [label, *legend(numbered, width, plain, paint)]
