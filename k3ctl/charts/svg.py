"""Panels as SVG inside a page: no library, no fonts of its own, the text colour of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from k3ctl.charts.axis import Axis, finite, time_axis, value_axis
from k3ctl.charts.panels import Panel

WIDTH, LEFT, RIGHT = 760, 64, 16
HEAD, ROW, FOOT, BETWEEN = 24, 110, 26, 14
KEY, LETTER = 46, 7.0
# Okabe and Ito's colours; each line has a dash and a mark of its own as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F", "#56B4E9", "#E69F00")
DASHES = ("", "7 3", "8 3 2 3", "2 3", "12 3", "5 2 1 2 1 2", "4 4")
MARKS_A_LINE = 8


def svg(
    shown: Sequence[Panel],
    since_s: float,
    until_s: float,
    *,
    title: str,
    rules: Sequence[float] = (),
) -> str:
    """One <svg> element. Everything that comes from data is escaped."""
    filled = [panel for panel in shown if _known(panel)]
    height = len(filled) * (HEAD + ROW + BETWEEN) + FOOT
    across = time_axis(since_s, until_s, 8)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        f"<title>{escape(title)}</title>",
    ]
    top = 0.0
    for panel in filled:
        parts += _panel(panel, across, top, rules)
        top += HEAD + ROW + BETWEEN
    parts += _time(across, top - BETWEEN)
    return "\n".join([*parts, "</svg>"])


def _known(panel: Panel) -> list[float]:
    return [
        value
        for points in panel.series.values()
        for _, y in points
        if (value := finite(y)) is not None
    ]


def _panel(panel: Panel, across: Axis, top: float, rules: Sequence[float]) -> Iterable[str]:
    base, roof = top + HEAD + ROW, top + HEAD
    upright = value_axis(_known(panel), 4, from_zero=panel.from_zero)

    def x(at: float) -> float:
        return LEFT + across.share(at) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return base - upright.share(value) * ROW

    yield f'<text x="{LEFT}" y="{top + 14:.1f}" font-weight="600">{escape(panel.label)}</text>'
    yield from _legend(panel, top)
    for tick in upright.ticks:
        place = y(tick.at)
        yield (
            f'<path d="M{LEFT} {place:.1f}H{WIDTH - RIGHT}" stroke="currentColor" '
            f'stroke-opacity="0.15" fill="none"/>'
            f'<text x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end" fill-opacity="0.7">'
            f"{escape(tick.label)}</text>"
        )
    for at in rules:
        if across.first <= at <= across.last:
            yield (
                f'<path d="M{x(at):.1f} {roof:.1f}V{base:.1f}" stroke="currentColor" '
                f'stroke-opacity="0.5" stroke-dasharray="1 3" fill="none"/>'
            )
    for number, points in enumerate(panel.series.values()):
        runs = list(_runs((x(at), value) for at, value in points))
        placed = [[(across_, y(value)) for across_, value in run] for run in runs]
        yield from _line(number, placed)


def _runs(points: Iterable[tuple[float, float | None]]) -> Iterable[list[tuple[float, float]]]:
    """Stretches without a gap."""
    run: list[tuple[float, float]] = []
    for at, value in points:
        known = finite(value)
        if known is None:
            if run:
                yield run
            run = []
        else:
            run.append((at, known))
    if run:
        yield run


def _line(number: int, runs: Sequence[Sequence[tuple[float, float]]]) -> Iterable[str]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    path = "".join(
        "M" + "L".join(f"{across:.1f} {down:.1f}" for across, down in run)
        for run in runs
        if len(run) > 1
    )
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    if path:
        yield f'<path d="{path}" stroke="{colour}" stroke-width="1.6" fill="none"{dashed}/>'
    alone = [run[0] for run in runs if len(run) == 1]
    together = [place for run in runs if len(run) > 1 for place in run]
    step = max(1, len(together) // MARKS_A_LINE)
    for place in [*alone, *together[number % step :: step]]:
        yield _mark(number, *place)


def _mark(number: int, x: float, y: float) -> str:
    colour = COLOURS[number % len(COLOURS)]
    shapes = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>',
        f'<path d="M{x:.1f} {y - 4:.1f}l4 7h-8z" fill="{colour}"/>',
        f'<path d="M{x:.1f} {y - 4:.1f}l4 4-4 4-4-4z" fill="{colour}"/>',
        f'<path d="M{x - 3:.1f} {y - 3:.1f}h6v6h-6z" fill="{colour}"/>',
    )
    return shapes[number % len(shapes)]


def _legend(panel: Panel, top: float) -> Iterable[str]:
    """Keys at the right of the label, those with figures only."""
    named = [
        (number, name)
        for number, (name, points) in enumerate(panel.series.items())
        if any(finite(y) is not None for _, y in points)
    ]
    if len(named) < 2:
        return
    place = WIDTH - RIGHT - sum(KEY + LETTER * len(name) for _, name in named)
    for number, name in named:
        middle = top + 10
        yield from _line(number, [[(place, middle), (place + 22, middle)]])
        yield f'<text x="{place + 27:.1f}" y="{top + 14:.1f}">{escape(name)}</text>'
        place += KEY + LETTER * len(name)


def _time(across: Axis, base: float) -> Iterable[str]:
    yield f'<path d="M{LEFT} {base:.1f}H{WIDTH - RIGHT}" stroke="currentColor" fill="none"/>'
    for tick in across.ticks:
        place = LEFT + across.share(tick.at) * (WIDTH - LEFT - RIGHT)
        yield (
            f'<path d="M{place:.1f} {base:.1f}v4" stroke="currentColor" fill="none"/>'
            f'<text x="{place:.1f}" y="{base + 17:.1f}" text-anchor="middle" fill-opacity="0.7">'
            f"{escape(tick.label)}</text>"
        )
