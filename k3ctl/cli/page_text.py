"""A page as lines for a terminal or a .txt file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from k3ctl.charts.axis import time_axis
from k3ctl.charts.panels import panels
from k3ctl.cli.page import Block, Commands, Drawing, Grid, Page, Words, one_line

GAP = "  "
LEAST_LAST = 16
CHART_LINES = 14
COLUMNS_A_TICK = 13


def page_lines(
    page: Page, width: int, *, plain: bool, heading: Callable[[str], str] = str
) -> list[str]:
    """Lines of at most `width` columns where the words allow it; ASCII when `plain`. `heading`
    may make the sections' titles stand out."""
    lines = [*_wrapped(page.title, width), *_wrapped(page.subtitle, width)]
    for section in page.sections:
        lines += ["", heading(section.title.upper())]
        for number, block in enumerate(section.blocks):
            lines += [""] if number else []
            lines += _block(block, width, plain)
    return [*lines, "", *_wrapped(page.footnote, width)]


def _block(block: Block, width: int, plain: bool) -> list[str]:
    match block:
        case Words(text):
            return _wrapped(text, width)
        case Grid():
            return grid_lines(block, width)
        case Drawing():
            return chart_lines(block, width, plain=plain)
        case Commands(lines):
            return [line for command, why in lines for line in _command(command, why, width)]


def chart_lines(drawing: Drawing, width: int, *, plain: bool) -> list[str]:
    """The charts of a drawing with their caption."""
    ticks = max(2, width // COLUMNS_A_TICK)
    drawn = panels(
        drawing.panels,
        width,
        CHART_LINES,
        x_label="",
        ascii=plain,
        x_axis=time_axis(drawing.since_s, drawing.until_s, ticks),
        rules=drawing.rules,
    )
    return [*drawn, *_wrapped(drawing.caption, width)]


def grid_lines(grid: Grid, width: int) -> list[str]:
    """A table whose last column is wrapped within what the others leave."""
    told = [grid.headers, *grid.rows] if any(grid.headers) else grid.rows
    rows = [tuple(one_line(cell) for cell in row) for row in told]
    last = len(grid.headers) - 1
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(last)]
    before = sum(widths) + len(GAP) * last
    room = width - before
    longest = max((len(row[last]) for row in rows), default=0)
    if room < min(LEAST_LAST, longest):
        return _stacked(grid, width)
    lines = []
    for row in rows:
        cells = [
            f"{cell:>{size}}" if grid.right[column : column + 1] == "r" else f"{cell:{size}}"
            for column, (cell, size) in enumerate(zip(row[:last], widths, strict=True))
        ]
        wrapped = textwrap.wrap(row[last], room) or [""]
        lines.append(GAP.join([*cells, wrapped[0]]).rstrip())
        lines += [" " * before + rest for rest in wrapped[1:]]
    return lines


def _stacked(grid: Grid, width: int) -> list[str]:
    """A row as a paragraph, where its columns have no room beside one another."""
    lines: list[str] = []
    for row in grid.rows:
        lines += _wrapped(", ".join(cell for cell in row if cell), width)
    return lines


def _command(command: str, why: str, width: int) -> Sequence[str]:
    """A line to type is never broken: it is to be copied."""
    return [f"{GAP}{one_line(command)}", *textwrap.wrap(one_line(why), width, initial_indent="    ",
                                              subsequent_indent="    ")]  # fmt: skip


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(one_line(text), width, subsequent_indent=GAP)
