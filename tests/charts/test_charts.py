"""Charts stay within their size, draw every figure, and none where there is none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3ctl.charts.axis import clock, plain_axis, time_axis, value_axis
from k3ctl.charts.bars import bar
from k3ctl.charts.canvas import ASCII_MARKS, MARKS, Canvas
from k3ctl.charts.line_chart import line_chart
from k3ctl.charts.sparkline import ASCII_BLOCKS, BLOCKS, sparkline
from tests.charts.properties import property_test

numbers = st.floats(allow_nan=True, allow_infinity=True)
finite_numbers = st.floats(min_value=-1e300, max_value=1e300).filter(
    lambda number: number == 0 or abs(number) > 1e-290
)
points = st.lists(st.tuples(st.floats(-1e12, 1e12), st.none() | numbers), max_size=30).map(
    lambda found: sorted(found, key=lambda point: point[0])
)
series = st.dictionaries(st.text(st.characters(codec="ascii"), max_size=12), points, max_size=5)


def chart(found: dict, width: int = 60, height: int = 12, ascii: bool = False, **more):  # noqa: A002
    return line_chart(found, width, height, x_label="x", y_label="ms", ascii=ascii, **more)


def braille(line: str) -> list[int]:
    return [column for column, sign in enumerate(line) if 0x2800 < ord(sign) <= 0x28FF]


@property_test
@given(series, st.integers(-2, 120), st.integers(-2, 30), st.booleans())
def test_a_chart_is_never_larger_than_asked(found, width, height, plain) -> None:
    lines = chart(found, width, height, plain)
    assert len(lines) <= max(0, height)
    assert all(len(line) <= max(0, width) for line in lines)


@property_test
@given(st.lists(finite_numbers, min_size=1, max_size=20), st.integers(2, 9), st.booleans())
def test_an_axis_holds_every_value_and_few_ticks(values, most, zero) -> None:
    axis = value_axis(values, most, from_zero=zero)
    assert axis.first < axis.last
    assert axis.first <= min(values)
    assert max(values) <= axis.last
    assert 1 <= len(axis.ticks) <= most + 1
    assert all(0 <= axis.share(value) <= 1 for value in values)
    assert not zero or axis.first <= 0 <= axis.last


@property_test
@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=20), st.integers(2, 9))
def test_a_plain_axis_spans_its_values_exactly(values, most) -> None:
    axis = plain_axis(values, most)
    assert axis.first <= min(values)
    assert max(values) <= axis.last
    assert all(axis.first <= tick.at <= axis.last for tick in axis.ticks)


@property_test
@given(st.floats(1e9, 4e9), st.floats(0, 1e9), st.integers(1, 12))
def test_a_time_axis_has_round_times_inside_it(first, span, most) -> None:
    axis = time_axis(first, first + span, most)
    assert axis.first < axis.last
    assert len(axis.ticks) <= most + 1
    assert all(axis.first <= tick.at <= axis.last for tick in axis.ticks)


def test_round_times_are_the_local_clocks(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    import time

    time.tzset()
    try:
        noon = 1_764_441_000  # 18:30 UTC: midnight there
        assert [tick.label for tick in time_axis(noon, noon + 6 * 3600, 6).ticks] == [
            *("00:00", "01:00", "02:00", "03:00", "04:00", "05:00", "06:00"),
        ]
        assert clock(noon, 86_400) == "30 Nov"
    finally:
        monkeypatch.undo()
        time.tzset()


@property_test
@given(st.integers(1, 40), st.integers(1, 20), st.booleans(), st.data())
def test_lines_reach_both_their_ends(width, height, plain, data) -> None:
    canvas = Canvas(width, height, plain=plain)
    across = st.tuples(st.integers(0, canvas.dots_wide - 1), st.integers(0, canvas.dots_high - 1))
    start, end = data.draw(across), data.draw(across)
    canvas.line(start, end, 0)
    rows = canvas.rows()
    for column, row in (start, end):
        sign = rows[row if plain else row // 4][column if plain else column // 2]
        assert sign != " "
    with pytest.raises(IndexError):
        canvas.dot(canvas.dots_wide, 0, 0)


@property_test
@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40))
def test_every_finite_point_is_drawn(values) -> None:
    """A lone point between two gaps is still a dot."""
    spaced = [(float(2 * n), value) for n, value in enumerate(values)]
    gaps = [(float(2 * n + 1), None) for n in range(len(values))]
    lines = chart({"a": sorted(spaced + gaps)}, 200, 14)
    drawn = [column for line in lines[1:12] for column in braille(line)]
    assert len(set(drawn)) == len(values)


def test_a_gap_stays_empty_and_is_no_zero() -> None:
    with_gap = [(float(x), None if 30 <= x < 70 else 50.0) for x in range(100)]
    lines = chart({"a": with_gap}, 60, 12)
    columns = {column for line in lines for column in braille(line)}
    margin = lines[1].index("┤") + 1
    middle = range(margin + 20, margin + 36)
    assert columns
    assert not columns & set(middle)
    for unavailable in (math.nan, math.inf, -math.inf):
        other = [(x, unavailable if y is None else y) for x, y in with_gap]
        assert chart({"a": other}, 60, 12) == lines
    zeros = [(x, 0.0 if y is None else y) for x, y in with_gap]
    assert chart({"a": zeros}, 60, 12) != lines


def test_nothing_to_draw_says_so() -> None:
    for found in ({}, {"a": []}, {"a": [(0.0, None), (1.0, math.nan)]}):
        assert chart(found) == ["ms: no figures"]


@pytest.mark.parametrize("plain", [False, True])
def test_series_are_told_apart_without_colour(plain) -> None:
    found = {f"tier {n}": [(float(x), 10.0 * n + x / 9) for x in range(60)] for n in range(4)}
    lines = chart(found, 70, 16, plain)
    marks = (ASCII_MARKS if plain else MARKS)[:4]
    for number, sign in enumerate(marks):
        assert f"{sign} tier {number}" in lines[-1]
        assert sum(line.count(sign) for line in lines[1:-3]) >= 3
    assert plain is all(line.isascii() for line in lines)


def test_colour_changes_no_character() -> None:
    found = {"a": [(0.0, 1.0), (9.0, 4.0)], "b": [(0.0, 3.0), (9.0, 2.0)]}
    painted = chart(found, paint=lambda number, text: f"<{number}>{text}</>")
    bare = [line.replace("<0>", "").replace("<1>", "").replace("</>", "") for line in painted]
    assert bare == chart(found)
    assert painted != bare


def test_a_chart_as_it_is_drawn() -> None:
    rising = {"a": [(float(x), x * 10.0) for x in range(11)]}
    assert line_chart(rising, 32, 8, x_label="rows", y_label="time, ms", ascii=True) == [
        "    time, ms",
        "100 +                       ****",
        "    |                  *****",
        " 50 +          ********",
        "    |     *****",
        "  0 +*****",
        "    ++-------------------------+",
        "     0                        10",
    ]
    assert line_chart(rising, 32, 8, x_label="", y_label="time, ms", ascii=False)[1:5] == [
        "100 ┤                      ⣀⡠⠤⠒⠉",
        "    │                 ⣀⠤⠔⠊⠉",
        " 50 ┤          ⣀⣀⠤⠤⠒⠊⠉",
        "    │     ⣀⡠⠔⠒⠉",
    ]


@property_test
@given(st.lists(st.none() | numbers, max_size=50), st.integers(-1, 40), st.booleans())
def test_a_sparkline_fits_and_leaves_gaps(values, width, plain) -> None:
    line = sparkline(values, width, plain)
    assert len(line) == min(max(0, width), len(values))
    shown = values[-width:] if width > 0 else []
    blocks = ASCII_BLOCKS if plain else BLOCKS
    for value, sign in zip(shown, line, strict=True):
        known = value is not None and math.isfinite(value)
        assert sign in (blocks if known else " ")


def test_a_sparkline_shows_zero_and_the_largest() -> None:
    assert sparkline([0.0, None, 4.0, 8.0], 4, False) == "▁ ▅█"
    assert sparkline([0.0, None, 4.0, 8.0], 4, True) == "_ +@"
    assert sparkline([1.0, 2.0], 2, False, most=8.0) == "▂▃"


@property_test
@given(st.floats(1e-9, 1e9), st.floats(1e-3, 1e9), st.integers(1, 60), st.booleans())
def test_a_bar_is_as_long_as_its_share(value, most, width, plain) -> None:
    drawn = bar(value, most, width, plain)
    assert 1 <= len(drawn) <= width
    assert abs(len(drawn) - min(1.0, value / most) * width) <= 1
    assert bar(None, most, width, plain) == bar(0.0, most, width, plain) == ""
