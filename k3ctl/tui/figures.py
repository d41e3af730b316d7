"""Figures as the console writes them: short, aligned, a dash for what is not known."""

from __future__ import annotations

from collections.abc import Sequence

from k3ctl.charts.sparkline import sparkline
from k3ctl.cli.table import counted, duration_us, size
from k3ctl.tui.ink import Ink, Line, Span, line, quiet
from k3ctl.tui.marks import Marks

HOT_C = 85.0
WARM_C = 75.0
HEADROOM = 1.6

__all__ = ["amount", "bar", "counted", "curve", "duration_us", "heat_ink", "share", "size", "watts"]


def amount(value: float | None, digits: int = 1) -> str:
    """A number of three figures or so."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}f}"


def watts(power_w: float | None, cap_w: float | None = None) -> str:
    if power_w is None:
        return "-"
    return f"{power_w:,.0f} W" if cap_w is None else f"{power_w:,.0f}/{cap_w:,.0f} W"


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def heat_ink(temperature_c: float | None) -> Ink:
    """Hot is marked in its text too: see `celsius`."""
    if temperature_c is None or temperature_c < WARM_C:
        return "plain"
    return "bad" if temperature_c >= HOT_C else "warn"


def celsius(temperature_c: float | None, marks: Marks) -> Line:
    """Degrees; from 85 on with a glyph, since colour alone says nothing to everybody."""
    if temperature_c is None:
        return line(quiet("-"))
    hot = f"{marks.states['alert']} " if temperature_c >= HOT_C else ""
    return line(Span(hot + marks.celsius(temperature_c), heat_ink(temperature_c)))


def curve(values: Sequence[float | None], width: int, marks: Marks, ink: Ink = "curve") -> Line:
    """A sparkline of exactly `width` columns, the newest at the right, with room above it."""
    most = max((value for value in values[-width:] if value is not None), default=0.0)
    drawn = sparkline(values, width, marks.ascii, most=most * HEADROOM or None)
    return (Span(drawn.rjust(width), ink),)


def bar(part: float | None, width: int, marks: Marks, ink: Ink = "accent") -> Line:
    """A share as a bar on its track."""
    if width <= 0:
        return ()
    filled = 0 if part is None else round(max(0.0, min(1.0, part)) * width)
    if part and not filled:
        filled = 1
    return tuple(
        span
        for span in (Span(marks.fill * filled, ink), Span(marks.track * (width - filled), "rule"))
        if span.text
    )
