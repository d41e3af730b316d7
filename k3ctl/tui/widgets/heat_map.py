"""The heat map of layer by expert as lines of styled text. Pure: numbers in, lines out.

A pixel says what it says in its glyph and, where there is colour, in its ink: a level of use or a
tier. Only where layers have to share a line does colour alone tell the two halves of a cell apart;
looks without colour put more layers into one pixel instead. The cursor is marked at both axes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from k3ctl.tui.ink import TIER_INKS, Ink
from k3ctl.tui.widgets.heat_bins import Grid, lay_out

Look = Literal["colour", "unicode", "ascii"]

USE_GLYPHS: dict[Look, str] = {"colour": " ·░▒▓█", "unicode": " ·░▒▓█", "ascii": " .-+*#"}
USE_INKS: tuple[Ink, ...] = ("rule", "heat-1", "heat-2", "heat-3", "heat-4", "heat-5")
LEGEND_WIDTH = 62
USE_WORDS = ("never", "<1/2", "1/2-1", "1-2", "2-4", ">4 x even")
GUTTER = 5
"""Columns before the map: a mark and a layer's number."""
MARKS: dict[Look, tuple[str, str]] = {
    "colour": ("▸", "▲"), "unicode": ("▸", "▲"), "ascii": (">", "^"),
}  # fmt: skip


class Run(NamedTuple):
    """Text of one style: the ink of its glyphs, the ink whose colour is behind them, and whether
    it is the cursor's pixel."""

    text: str
    ink: Ink = "plain"
    ground: Ink | None = None
    cursor: bool = False


Line = tuple[Run, ...]


@dataclass(frozen=True)
class Pixels:
    """What is drawn: numbers by row and column, with a glyph and an ink for each number."""

    values: Sequence[bytes]
    glyphs: str
    inks: tuple[Ink, ...]


def grid_for(layers: int, experts: int, width: int, height: int, look: Look) -> Grid:
    """The grid of a map that, with its axes, takes `width` columns and `height` lines."""
    return lay_out(layers, experts, width - GUTTER, height, halves=look == "colour")


def use_pixels(values: Sequence[bytes], look: Look) -> Pixels:
    """Pixels of levels from `use_levels`."""
    return Pixels(values, USE_GLYPHS[look], USE_INKS)


def tier_letters(tiers: Sequence[str]) -> str:
    """A letter a tier: its first that no tier before it has, else a digit."""
    found = ""
    for number, tier in enumerate(tiers):
        free = (letter for letter in tier.lower() if letter.isalpha() and letter not in found)
        found += next(free, str(number % 10))
    return found


def tier_ink(tiers: Sequence[str], number: int) -> Ink:
    """A tier's own ink, or one in turn for a tier of another name."""
    return TIER_INKS.get(tiers[number]) or list(TIER_INKS.values())[number % len(TIER_INKS)]


def tier_pixels_of(values: Sequence[bytes], tiers: Sequence[str]) -> Pixels:
    """Pixels of numbers from `tier_pixels`: a capital where a tier has the pixel to itself."""
    glyphs = "".join(letter + letter.upper() for letter in tier_letters(tiers))
    inks: tuple[Ink, ...] = tuple(tier_ink(tiers, number // 2) for number in range(len(glyphs)))
    return Pixels(values, glyphs, inks)


def draw(
    grid: Grid,
    pixels: Pixels,
    layers: Sequence[int],
    look: Look,
    cursor: tuple[int, int] | None = None,
) -> list[Line]:
    """The lines of a map with its axes. `layers` are model layer numbers by position; `cursor` is
    a pixel of the grid as (row, column)."""
    lines = [draw_line(grid, pixels, layers, look, at, cursor) for at in range(grid.lines)]
    return [*lines, draw_axis(grid, look, cursor)] if grid.axis else lines


def draw_line(
    grid: Grid,
    pixels: Pixels,
    layers: Sequence[int],
    look: Look,
    line: int,
    cursor: tuple[int, int] | None,
) -> Line:
    """One line of pixels, which depends on the cursor only where that is on it."""
    first = 2 * line if grid.halved else line
    rows = range(first, min(grid.height, first + (2 if grid.halved else 1)))
    at = cursor if cursor is not None and cursor[0] in rows else None
    mark = " " if at is None else MARKS[look][0]
    gutter = Run(f"{mark}{layers[grid.rows[first]]:>3} "[-GUTTER:], "accent" if at else "quiet")
    cells = _halves(grid, pixels, rows, at) if grid.halved else _cells(grid, pixels, line, at)
    return (gutter, *cells)


def draw_axis(grid: Grid, look: Look, cursor: tuple[int, int] | None) -> Line:
    """Expert numbers below the map."""
    return (Run(_axis(grid, MARKS[look][1], cursor), "quiet"),)


def use_legend(look: Look, grid: Grid, width: int) -> Line:
    """What the levels look like, in glyphs and words; close together where there is no room."""
    runs: list[Run] = []
    gap = " " if width < LEGEND_WIDTH else "  "
    for glyph, ink, words in zip(USE_GLYPHS[look], USE_INKS, USE_WORDS, strict=True):
        if grid.halved:
            sample = Run("▀▀", ink)
        else:
            sample = Run("[ ]", "quiet") if glyph == " " else Run(glyph * 2, ink)
        runs += [sample, Run(f" {words}{gap}", "quiet")]
    return tuple(runs)


def tier_legend(tiers: Sequence[str], grid: Grid) -> Line:
    """Whose letters and inks are whose, and what a small letter means where there are any."""
    runs: list[Run] = []
    for number, (letter, tier) in enumerate(zip(tier_letters(tiers), tiers, strict=True)):
        sample = "▀" if grid.halved else letter.upper()
        runs += [Run(sample * 2, tier_ink(tiers, number)), Run(f" {tier}  ", "quiet")]
    exact = (grid.height, grid.width) == (grid.rows[-1], grid.columns[-1])
    if not exact:
        words = "most common of a pixel" if grid.halved else "small letter: mostly"
        runs.append(Run(words, "quiet"))
    return tuple(runs)


def text_of(line: Line) -> str:
    return "".join(run.text for run in line)


def _cells(grid: Grid, pixels: Pixels, row: int, cursor: tuple[int, int] | None) -> list[Run]:
    """One row of pixels, one line high."""
    runs, column = [], 0
    at = cursor[1] if cursor is not None else -1
    for value, group in groupby(pixels.values[row]):
        count = len(list(group))
        glyph, ink = pixels.glyphs[value] * grid.wide, pixels.inks[value]
        if column <= at < column + count:
            runs += [Run(glyph * (at - column), ink)] if at > column else []
            runs.append(Run(glyph, ink, cursor=True))
            rest = column + count - at - 1
            runs += [Run(glyph * rest, ink)] if rest else []
        else:
            runs.append(Run(glyph * count, ink))
        column += count
    return runs


def _halves(grid: Grid, pixels: Pixels, rows: range, cursor: tuple[int, int] | None) -> list[Run]:
    """Two rows of pixels in one line: the upper is ink, the lower ground, none below the last."""
    upper, alone = pixels.values[rows[0]], len(rows) == 1
    lower = upper if alone else pixels.values[rows[1]]
    runs, column = [], 0
    at = cursor[1] if cursor is not None else -1
    for (top, bottom), group in groupby(zip(upper, lower, strict=True)):
        count = len(list(group))
        ink, ground = pixels.inks[top], None if alone else pixels.inks[bottom]
        if cursor is not None and column <= at < column + count:
            runs += [_half(grid.wide * (at - column), ink, ground)] if at > column else []
            # The cursor takes one half; the other keeps its pixel behind it.
            on_top = cursor[0] == rows[0]
            half = "▀" if on_top else "▄"
            runs.append(Run(half * grid.wide, "strong", ground if on_top else ink, cursor=True))
            rest = column + count - at - 1
            runs += [_half(grid.wide * rest, ink, ground)] if rest else []
        else:
            runs.append(_half(grid.wide * count, ink, ground))
        column += count
    return runs


def _half(columns: int, ink: Ink, ground: Ink | None) -> Run:
    return Run("█" * columns, ink) if ink == ground else Run("▀" * columns, ink, ground)


def _axis(grid: Grid, mark: str, cursor: tuple[int, int] | None) -> str:
    """Expert numbers at the ends and at the cursor, which has a mark below its pixel."""
    width = grid.width * grid.wide
    first, last = str(grid.columns[0]), str(grid.columns[-1] - 1)
    if cursor is None:
        return " " * GUTTER + first + last.rjust(width - len(first))
    at = cursor[1] * grid.wide
    number = str(grid.columns[cursor[1]])
    # Its number stands to the right of the mark, or to the left where the map ends.
    start = at if at + 1 + len(number) <= width else at - len(number)
    words = mark + number if start == at else number + mark
    stop = start + len(words)
    before = first.ljust(start) if start > len(first) else " " * start
    after = last.rjust(width - stop) if width - stop > len(last) else ""
    return (" " * GUTTER + before + words + after).rstrip()
