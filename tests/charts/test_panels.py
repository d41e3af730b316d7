"""Panels share one x axis and fit the width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from k3ctl.charts.panels import LEAST_ROWS, LEAST_WIDTH, Panel, panels
from tests.charts.properties import property_test

values = st.none() | st.floats(allow_nan=True, allow_infinity=True)
lines = st.lists(values, max_size=12).map(lambda ys: [(float(x), y) for x, y in enumerate(ys)])
shown = st.lists(
    st.builds(
        Panel,
        label=st.text(st.characters(codec="ascii"), max_size=30),
        series=st.dictionaries(
            st.text(st.characters(codec="ascii"), max_size=9), lines, max_size=4
        ),
    ),
    max_size=4,
)


@property_test
@given(shown, st.integers(0, 130), st.integers(0, 50), st.booleans())
def test_panels_fit_the_width(found, width, height, plain) -> None:
    drawn = panels(found, width, height, x_label="time", ascii=plain, rules=[2.0, 1e9])
    assert all(len(line) <= max(LEAST_WIDTH, width) for line in drawn)
    least = sum(LEAST_ROWS + 1 + len(panel.series) for panel in found) + 2
    assert len(drawn) <= max(height, least)


def test_panels_as_they_are_drawn() -> None:
    first = Panel("watts", {"a": [(0.0, 10.0), (9.0, 20.0)], "b": []})
    second = Panel("degrees", {"a": [], "b": [(0.0, 40.0), (9.0, None)]})
    none = Panel("clock", {"a": [(0.0, None)]})
    drawn = panels([first, none, second], 34, 14, x_label="s", ascii=True, rules=[4.5])
    assert drawn == [
        "watts      * a",
        "20 +              :       ********",
        "   |        **************",
        "   |********      :",
        " 0 +              :",
        "degrees      o b",
        "50 +              :",
        "   |o             :",
        "   |              :",
        " 0 +              :",
        "   ++-----------------------------",
        "    0                            s",
        "clock: no figures",
    ]


def test_without_a_figure_every_panel_says_so() -> None:
    found = [Panel("watts", {"a": []}), Panel("clock", {})]
    assert panels(found, 80, 24, x_label="", ascii=False) == [
        "watts: no figures",
        "clock: no figures",
    ]
