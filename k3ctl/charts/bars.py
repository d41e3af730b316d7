"""One bar a line: a name, a bar and its figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from k3ctl.charts.axis import finite

EIGHTHS = "▏▎▍▌▋▊▉█"
LEAST_BAR = 4


def bar(value: float | None, most: float, width: int, ascii: bool) -> str:  # noqa: A002 - what every caller calls it
    """A bar as long as `value` of `most` over `width` columns; at least a mark when above 0."""
    known = finite(value)
    if known is None or known <= 0 or most <= 0 or width <= 0:
        return ""
    share = min(1.0, known / most)
    if ascii:
        return "#" * max(1, round(share * width))
    eighths = max(1, round(share * width * 8))
    whole, rest = divmod(eighths, 8)
    return EIGHTHS[-1] * whole + (EIGHTHS[rest - 1] if rest else "")


def bars(
    values: Mapping[str, float | None],
    width: int,
    *,
    show: Callable[[float | None], str],
    ascii: bool,  # noqa: A002 - what every caller calls it
    most: float | None = None,
) -> list[str]:
    """A line for each value, at most `width` columns, on one scale from 0 to `most` or the
    largest. `show` writes the figure; for None there is no bar."""
    known = [number for value in values.values() if (number := finite(value)) is not None]
    top = max(known, default=0.0) if most is None else most
    figures = {name: show(value) for name, value in values.items()}
    figure_width = max(map(len, figures.values()), default=0)
    names = max(map(len, values), default=0)
    names = max(0, min(names, width - figure_width - LEAST_BAR - 2))
    room = width - names - figure_width - 2
    lines = []
    for name, value in values.items():
        drawn = bar(value, top, room, ascii)
        lines.append(f"{name[:names]:{names}} {figures[name]:>{figure_width}} {drawn}"[:width])
    return [line.rstrip() for line in lines]
