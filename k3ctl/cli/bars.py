"""Plots of plain text: one bar a line, in ASCII where nothing else can be shown."""

from __future__ import annotations

from k3ctl.cli.output import unicode_shown

EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(value: float, most: float, width: int) -> str:
    """A bar as long as `value` of `most` over `width` columns, at least a mark when not 0."""
    if most <= 0 or value <= 0:
        return ""
    length = min(1.0, value / most) * width
    if not unicode_shown():
        return "#" * max(1, round(length))
    whole = int(length)
    return "█" * whole + EIGHTHS[int((length - whole) * 8)].strip() or EIGHTHS[1]
