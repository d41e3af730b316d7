"""Layers by experts, gathered into as many pixels as a screen has: the arithmetic of the heat map.

A pixel is a rectangle of layers and experts. At one layer and one expert a pixel the map is exact;
of a larger model a pixel stands for several, whose uses it sums and whose most common tier it has.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import itemgetter, sub

NEVER, LEVELS = 0, 6
STEPS = (0.5, 1.0, 2.0, 4.0)
"""Where a level ends, as multiples of an even share: of what every expert would get if all were
used alike."""
WIDEST = 3
"""Columns that one expert may take where there is room for more than one each."""

Running = Sequence[Sequence[int]]
"""Uses of each layer summed up to each expert, with a 0 before the first."""


@dataclass(frozen=True)
class Grid:
    """Where pixels begin: at layer positions `rows` and experts `columns`, the last being ends.

    A pixel is `wide` columns of the screen wide. `halved` pixels are half a line high. `axis` says
    whether there is a line left for expert numbers.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    wide: int
    halved: bool
    axis: bool = True

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return len(self.rows) - 1

    @property
    def width(self) -> int:
        """Pixels from left to right."""
        return len(self.columns) - 1

    @property
    def lines(self) -> int:
        return -(-self.height // 2) if self.halved else self.height

    def layers(self, row: int) -> range:
        """Layer positions of a row of pixels."""
        return range(self.rows[row], self.rows[row + 1])

    def experts(self, column: int) -> range:
        return range(self.columns[column], self.columns[column + 1])

    def pixel(self, layer: int, expert: int) -> tuple[int, int]:
        """(row, column) of the pixel that stands for a layer position and an expert."""
        return _within(self.rows, layer), _within(self.columns, expert)


def lay_out(layers: int, experts: int, width: int, height: int, *, halves: bool) -> Grid:
    """The finest grid for a map in `width` columns and `height` lines, at least one of each.

    The last line is for expert numbers, unless the layers need just that one too. `halves` allows
    two pixels a line, which are used when the layers do not get a line each.
    """
    axis = height > 1 and layers != height
    height = max(1, height - axis)
    halved = halves and layers > height
    rows = min(layers, height * (2 if halved else 1))
    columns = min(experts, max(1, width))
    wide = max(1, min(WIDEST, width // columns)) if columns == experts else 1
    return Grid(_edges(layers, rows), _edges(experts, columns), wide, halved, axis)


def running_sums(rows: Iterable[Iterable[int]]) -> list[array[int]]:
    """Sums that make any stretch of experts one subtraction. `rows` is [layers][experts]."""
    return [array("q", accumulate(row, initial=0)) for row in rows]


def tier_sums(tier_of: bytes, experts: int, tiers: int) -> list[list[array[int]]]:
    """Running sums of the experts of each tier. `tier_of` has a tier's number an expert, layer by
    layer."""
    found = []
    for tier in range(tiers):
        here = tier_of.translate(bytes(number == tier for number in range(256)))
        starts = range(0, len(here), experts)
        found.append(running_sums(here[start : start + experts] for start in starts))
    return found


def use_levels(sums: Running, grid: Grid) -> list[bytes]:
    """For every row of pixels a level each, 0 (never used) to LEVELS - 1, by mean use an expert."""
    experts = grid.columns[-1]
    total = sum(row[-1] for row in sums)
    if not total:
        return [bytes(grid.width)] * grid.height
    even = total / (len(sums) * experts)
    sizes = [stop - start for start, stop in pairwise(grid.columns)]
    limits: dict[int, tuple[float, ...]] = {}
    found = []
    for row in range(grid.height):
        layers = len(grid.layers(row))
        for size in set(sizes):
            here = even * size * layers
            limits[size] = (1e-9 * here, *(step * here for step in STEPS))
        each = map(limits.__getitem__, sizes)
        found.append(bytes(map(bisect_right, each, pixel_sums(sums, grid, row))))
    return found


def pixel_sums(sums: Running, grid: Grid, row: int) -> list[int]:
    """What the pixels of a row sum up to."""
    at_edges = itemgetter(*grid.columns)
    # Sums up to the edges of all layers of the row, then stretches between the edges.
    totals = list(
        map(sum, zip(*(at_edges(sums[layer]) for layer in grid.layers(row)), strict=True))
    )
    return list(map(sub, totals[1:], totals))


def tier_pixels(sums: Sequence[Running], grid: Grid) -> list[bytes]:
    """For every row of pixels a number each: twice the most common tier's, plus 1 if there is no
    other in it. `sums` are of `tier_sums`."""
    sizes = [stop - start for start, stop in pairwise(grid.columns)]
    found = []
    for row in range(grid.height):
        layers = len(grid.layers(row))
        counts = [pixel_sums(tier, grid, row) for tier in sums]
        most = map(max, *counts) if len(counts) > 1 else counts[0]
        found.append(
            bytes(
                2 * each.index(top) + (top == size * layers)
                for each, top, size in zip(zip(*counts, strict=True), most, sizes, strict=True)
            )
        )
    return found


def _edges(count: int, bins: int) -> tuple[int, ...]:
    """Where each of `bins` even stretches of `count` begins, and the end of the last."""
    return tuple(number * count // bins for number in range(bins + 1))


def _within(edges: Sequence[int], place: int) -> int:
    """The stretch that a place lies in, the nearest if it lies in none."""
    last = len(edges) - 2
    return next((number for number in range(last) if place < edges[number + 1]), last)
