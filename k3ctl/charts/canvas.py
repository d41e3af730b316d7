"""A grid of characters that lines are drawn on: braille has 2 x 4 dots a character, ASCII one."""

from __future__ import annotations

from collections.abc import Callable

Paint = Callable[[int, str], str]

_BRAILLE = 0x2800
# The bit of each dot, by row and column within a character.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
MARKS, ASCII_MARKS = "●▲◆■○△◇□", "*o#+x=%@"


def mark(number: int, plain: bool) -> str:
    """The mark that stands for a series, with colour or without."""
    marks = ASCII_MARKS if plain else MARKS
    return marks[number % len(marks)]


class Canvas:
    """`width` x `height` characters. Dots count from the upper left; beyond the edge is an error.

    Where only ASCII shows (`plain`) every dot is a character, its series' mark; braille shows the
    dots, and marks where they are put on it.
    """

    def __init__(self, width: int, height: int, *, plain: bool) -> None:
        self.width, self.height, self.plain = width, height, plain
        self.dots_wide = width if plain else 2 * width
        self.dots_high = height if plain else 4 * height
        self._bits = [[0] * width for _ in range(height)]
        self._marks: dict[tuple[int, int], int] = {}
        self._owner: dict[tuple[int, int], int] = {}
        self._rules: set[int] = set()

    def dot(self, column: int, row: int, series: int) -> None:
        if not (0 <= column < self.dots_wide and 0 <= row < self.dots_high):
            raise IndexError(f"dot {column}, {row} lies outside the canvas")
        if self.plain:
            self._marks[row, column] = self._owner[row, column] = series
            return
        x, y = column // 2, row // 4
        self._bits[y][x] |= _DOTS[row % 4][column % 2]
        self._owner[y, x] = series

    def line(self, start: tuple[int, int], end: tuple[int, int], series: int) -> None:
        """Every dot between two, both included."""
        (x, y), (to_x, to_y) = start, end
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for step in range(steps + 1):
            self.dot(
                x + round(step * (to_x - x) / steps), y + round(step * (to_y - y) / steps), series
            )

    def put_mark(self, column: int, row: int, series: int) -> None:
        """The series' mark over the character that holds a dot."""
        place = (row, column) if self.plain else (row // 4, column // 2)
        self._marks[place] = self._owner[place] = series

    def rule(self, column: int) -> None:
        """A dotted upright behind everything, in the character column that holds a dot."""
        self._rules.add(column if self.plain else column // 2)

    def rows(self, paint: Paint | None = None) -> list[str]:
        """The lines, each exactly `width` characters; `paint` colours what a series drew."""
        return [
            "".join(self._character(row, column, paint) for column in range(self.width))
            for row in range(self.height)
        ]

    def _character(self, row: int, column: int, paint: Paint | None) -> str:
        series = self._owner.get((row, column))
        if series is None:
            return (":" if self.plain else "┊") if column in self._rules else " "
        if (row, column) in self._marks:
            text = mark(self._marks[row, column], self.plain)
        else:
            text = chr(_BRAILLE + self._bits[row][column])
        return text if paint is None else paint(series, text)
