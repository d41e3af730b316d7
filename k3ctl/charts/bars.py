"""A figure as a bar of text."""

from __future__ import annotations

from k3ctl.charts.axis import finite

EIGHTHS = "▏▎▍▌▋▊▉█"


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
