"""A history as lines for a terminal."""

from __future__ import annotations

import textwrap

from k3ctl.charts.axis import time_axis
from k3ctl.charts.panels import panels
from k3ctl.cli.output import colour_shown, unicode_shown
from k3ctl.client.moments import local
from k3ctl.client.series import History
from k3ctl.client.shown_series import left_out, missing, provenance, shown_chart, title
from k3d.counted import counted

MOST_MARKS = 5
COLUMNS_A_TICK = 13
# Blue, yellow, magenta, cyan: apart for those who cannot tell red from green, in any theme.
INKS = ("34", "33", "35", "36")


def history_lines(history: History, width: int, height: int) -> list[str]:
    """Charts over one time axis, then marks, gaps and provenance. The charts have the height that
    is left, four rows each at least."""
    plain = not unicode_shown()
    shown = [shown_chart(chart).panel for chart in history.charts if chart.known]
    notes = _notes(history, width)
    drawn = panels(
        shown,
        width,
        height - 2 - len(notes),
        x_label="",
        ascii=plain,
        x_axis=time_axis(
            history.span.since_s, history.span.until_s, max(2, width // COLUMNS_A_TICK)
        ),
        rules=[mark.at_s for mark in history.marks],
        paint=_ink if colour_shown() else None,
    )
    lines = [*_wrapped(title(history), width), *drawn, *notes]
    return [line.replace("°", "") for line in lines] if plain else lines


def _notes(history: History, width: int) -> list[str]:
    rule = "┊" if unicode_shown() else ":"
    texts = [f"{rule} {local(mark.at_s)} {mark.label}" for mark in history.marks[-MOST_MARKS:]]
    if len(history.marks) > MOST_MARKS:
        texts.insert(0, f"not listed: {counted(len(history.marks) - MOST_MARKS, 'earlier map')}")
    without = [chart.title for chart in history.charts if not chart.known and not chart.missing]
    if without:
        texts.append(f"no figures of: {', '.join(without)}")
    texts += [*left_out(history), *missing(history)]
    texts.append(provenance(history))
    return [line for text in texts for line in _wrapped(text, width)]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ")


def _ink(number: int, text: str) -> str:
    return f"\x1b[{INKS[number % len(INKS)]}m{text}\x1b[0m"
