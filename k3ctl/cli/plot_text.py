"""Points in a plane as lines of text, in ASCII where nothing else can be shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from k3ctl.cli.output import unicode_shown

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 56, 12
STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
MARKS, ASCII_MARKS = "●○▲△◆◇", "*o#+x="


def plot(series: Mapping[str, Points], x_name: str, y_name: str) -> list[str]:
    """Lines of a plot from 0 on; each series has its mark, the last one drawn on top. Empty
    without a point above 0."""
    marks = MARKS if unicode_shown() else ASCII_MARKS
    points = [point for found in series.values() for point in found]
    most_x = _nice(max((x for x, _ in points), default=0.0))
    most_y = _nice(max((y for _, y in points), default=0.0))
    if most_x <= 0 or most_y <= 0:
        return []
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for number, found in enumerate(series.values()):
        for x, y in found:
            column = min(WIDTH - 1, round(x / most_x * (WIDTH - 1)))
            row = HEIGHT - 1 - min(HEIGHT - 1, round(y / most_y * (HEIGHT - 1)))
            grid[row][column] = marks[number % len(marks)]
    side, corner, floor = ("│", "└", "─") if unicode_shown() else ("|", "+", "-")
    labels = {0: f"{most_y:g}", HEIGHT - 1: "0"}
    margin = max(map(len, labels.values()))
    lines = [f"{'':{margin}} {y_name}"]
    for number, row in enumerate(grid):
        lines.append(f"{labels.get(number, ''):>{margin}} {side}{''.join(row)}".rstrip())
    lines.append(f"{'':{margin}} {corner}{floor * WIDTH}")
    lines.append(f"{'':{margin}} 0{f'{most_x:g} {x_name}':>{WIDTH}}")
    named = (f"{marks[n % len(marks)]} {name}" for n, name in enumerate(series))
    return [*lines, f"{'':{margin}}  {'   '.join(named)}"]


def _nice(most: float) -> float:
    """The next round number, for an axis to end at."""
    if not math.isfinite(most) or most <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in STEPS if step * power >= most * (1 - 1e-9))
