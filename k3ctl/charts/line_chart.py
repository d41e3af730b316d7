"""Lines over an axis, as text: braille dots, or one mark a column where only ASCII shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from k3ctl.charts.axis import Axis, finite, plain_axis, value_axis
from k3ctl.charts.canvas import Canvas, Paint, mark

Points = Sequence[tuple[float, float | None]]
LEAST_WIDTH, LEAST_HEIGHT = 16, 4
MARK_EVERY = 14
LEGEND_GAP = "   "
EMPTY = "no figures"


def line_chart(
    series: Mapping[str, Points],
    width: int,
    height: int,
    *,
    x_label: str,
    y_label: str,
    ascii: bool,  # noqa: A002 - what every caller calls it
    x_axis: Axis | None = None,
    y_axis: Axis | None = None,
    paint: Paint | None = None,
) -> list[str]:
    """At most `height` lines of at most `width` columns, without colour but for `paint`.

    Points are (x, y) in the order of x; a y of None breaks the line, and so does NaN. The y axis
    ends at round numbers and begins at 0 unless values lie below or `y_axis` says otherwise;
    `x_axis` gives a span and ticks of its own (`time_axis`). Series are told apart by their marks,
    named under the chart. `paint(number, text)` may colour what series `number` drew. A chart too
    small for axes is a bare plot; without any room it is empty.
    """
    if width <= 0 or height <= 0:
        return []
    drawn = {name: drawable(points) for name, points in series.items()}
    xs = [x for points in drawn.values() for x, y in points if y is not None]
    ys = [y for points in drawn.values() for _, y in points if y is not None]
    if not xs:
        return [f"{y_label}: {EMPTY}"[:width].rstrip()]
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        x_axis = x_axis or plain_axis(xs, 2)
        canvas = draw(drawn, Canvas(width, height, plain=ascii), x_axis, _y(ys, y_axis, 2))
        return [line.rstrip() for line in canvas.rows(paint)]
    keys = legend(enumerate(series), width, ascii, paint) if len(series) > 1 else []
    keys = keys[: max(0, height - LEAST_HEIGHT)]
    rows = height - 3 - len(keys)
    vertical = _y(ys, y_axis, max(2, (rows + 1) // 2))
    margin = max((len(tick.label) for tick in vertical.ticks), default=0)
    margin = min(margin, max(0, width - 2 - LEAST_WIDTH // 2))
    room = width - margin - 2
    horizontal = x_axis or plain_axis(xs, max(2, room // 12))
    canvas = draw(drawn, Canvas(room, rows, plain=ascii), horizontal, vertical)
    lines = [f"{'':{margin + 1}}{y_label}"[:width].rstrip()]
    lines += beside(canvas.rows(paint), vertical, margin, ascii)
    lines += under(horizontal, margin, room, x_label, ascii)
    return [*lines, *keys]


def drawable(points: Points) -> list[tuple[float, float | None]]:
    """The points that have a place; a y that is not available is None."""
    return [(x, finite(y)) for x, y in points if finite(x) == x]


def _y(values: list[float], given: Axis | None, most_ticks: int) -> Axis:
    if given is not None and given.first <= min(values) and max(values) <= given.last:
        return given
    return value_axis(values, most_ticks)


def draw(
    series: Mapping[str, list[tuple[float, float | None]]],
    canvas: Canvas,
    horizontal: Axis,
    vertical: Axis,
) -> Canvas:
    """Lines first and then all marks, so that no line hides another's mark."""
    marks: list[tuple[int, int, int]] = []
    for number, points in enumerate(series.values()):
        before: tuple[int, int] | None = None
        next_mark = (number * 5) % MARK_EVERY * (1 if canvas.plain else 2)
        last: tuple[int, int] | None = None
        for x, y in points:
            if y is None or not horizontal.first <= x <= horizontal.last:
                before = None
                continue
            place = (
                round(horizontal.share(x) * (canvas.dots_wide - 1)),
                round((1 - vertical.share(y)) * (canvas.dots_high - 1)),
            )
            canvas.line(before or place, place, number)
            if place[0] >= next_mark:
                marks.append((*place, number))
                next_mark = place[0] + MARK_EVERY * (1 if canvas.plain else 2)
            before = last = place
        if last is not None:
            marks.append((*last, number))
    if len(series) > 1:
        for column, row, number in marks:
            canvas.put_mark(column, row, number)
    return canvas


def beside(rows: list[str], axis: Axis, margin: int, plain: bool) -> list[str]:
    """The plot with its y axis at the left; ticks that share a line give way to the outer one."""
    side, tick_side = ("|", "+") if plain else ("│", "┤")
    labels: dict[int, str] = {}
    inner_last = sorted(axis.ticks, key=lambda tick: -abs(axis.share(tick.at) - 0.5))
    for tick in inner_last:
        row = round((1 - axis.share(tick.at)) * (len(rows) - 1))
        if not any(near in labels for near in (row - 1, row, row + 1)):
            labels[row] = tick.label[:margin]
    lines = []
    for number, row in enumerate(rows):
        edge = tick_side if number in labels else side
        lines.append(f"{labels.get(number, ''):>{margin}} {edge}{row}".rstrip())
    return lines


def under(axis: Axis, margin: int, room: int, name: str, plain: bool) -> list[str]:
    """The x axis and the labels of its ticks, with its name at the right where there is room."""
    floor, tick_mark, corner = ("-", "+", "+") if plain else ("─", "┬", "└")
    line, below = [floor] * room, [" "] * room
    taken = -1
    for tick in axis.ticks:
        column = round(axis.share(tick.at) * (room - 1))
        start = min(max(0, column - len(tick.label) // 2), room - len(tick.label))
        if start <= taken:
            continue
        line[column] = tick_mark
        below[start : start + len(tick.label)] = tick.label
        taken = start + len(tick.label)
    if taken + len(name) + 1 < room:
        below[room - len(name) :] = name
    space = " " * (margin + 1)
    return [f"{space}{corner}{''.join(line)}", f"{space} {''.join(below)}".rstrip()]


def legend(
    names: Iterable[tuple[int, str]], width: int, plain: bool, paint: Paint | None
) -> list[str]:
    """Marks and names, in as few lines as fit."""
    lines: list[str] = []
    used = 0
    for number, name in names:
        shown = name[: max(0, width - 4)]
        length = len(shown) + 2
        if lines and used + len(LEGEND_GAP) + length <= width:
            lines[-1] += LEGEND_GAP + named(number, shown, plain, paint)
            used += len(LEGEND_GAP) + length
        else:
            lines.append(f"  {named(number, shown, plain, paint)}")
            used = length + 2
    return lines


def named(number: int, name: str, plain: bool, paint: Paint | None) -> str:
    """The mark of series `number` and its name."""
    sign = mark(number, plain)
    return f"{sign if paint is None else paint(number, sign)} {name}"
