"""Times as people write them."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3ctl.client.moments import EXAMPLES, length_of_time, local, moment, span
from k3d.errors import ConfigError
from tests.charts.properties import property_test

NOW = datetime(2026, 11, 29, 3, 30).astimezone().timestamp()


@pytest.mark.parametrize(
    ("text", "seconds_ago"),
    [("now", 0), ("6h", 21_600), ("90m", 5_400), ("2d", 172_800), ("45s", 45), ("1w", 604_800),
     ("1h30m", 5_400), ("1.5h", 5_400), (" 6H ", 21_600), ("2 d 1 h", 176_400)],
)  # fmt: skip
def test_a_length_is_that_long_ago(text, seconds_ago) -> None:
    assert moment(text, NOW) == NOW - seconds_ago


@pytest.mark.parametrize(
    ("text", "meant"),
    [("03:12", (29, 3, 12, 0)), ("3:12:09", (29, 3, 12, 9)), ("03:30", (29, 3, 30, 0)),
     ("03:31", (28, 3, 31, 0)), ("23:59", (28, 23, 59, 0))],
)  # fmt: skip
def test_a_clocks_time_is_the_last_one(text, meant) -> None:
    day, hour, minute, second = meant
    expected = datetime(2026, 11, day, hour, minute, second).astimezone().timestamp()
    assert moment(text, NOW) == expected


def test_a_date_is_local_unless_it_has_a_zone() -> None:
    at = datetime(2026, 11, 28, 22, 15, 30).astimezone().timestamp()
    assert moment("2026-11-28T22:15:30", NOW) == moment("2026-11-28 22:15:30", NOW) == at
    assert moment("2026-11-28", NOW) == datetime(2026, 11, 28).astimezone().timestamp()
    assert moment("1970-01-02T00:00:00Z", NOW) == 86_400
    assert moment("1970-01-02T02:00:00+02:00", NOW) == 86_400


@pytest.mark.parametrize(
    "text",
    ["", "soon", "6", "h", "-6h", "25:00", "03:61", "2026-13-01", "6 parsecs", "2026-11-29T",
     "1e9s", "3h3h", "5m 2h", "03:12:99", "99999999w", "٣h", "\x00", "6h x"],
)  # fmt: skip
def test_anything_else_is_one_sentence(text) -> None:
    with pytest.raises(ConfigError) as caught:
        moment(text, NOW)
    assert caught.value.hint == EXAMPLES
    assert "\n" not in caught.value.message


@property_test
@given(st.text(max_size=30))
def test_no_text_is_a_crash(text) -> None:
    with contextlib.suppress(ConfigError):
        assert moment(text, NOW) is not None


@pytest.mark.parametrize(("since", "until"), [("now", "now"), ("1h", "2h"), ("now", "6h")])
def test_a_span_ends_after_it_begins(since, until) -> None:
    with pytest.raises(ConfigError, match="is not before"):
        span(since, until, NOW)
    assert span("2h", "1h", NOW).length_s == 3_600


def test_a_day_that_has_two_clocks(monkeypatch) -> None:
    """Summer time ends on 2026-10-25 in Berlin: 12:00 yesterday was 25 hours before 12:00."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        now = datetime(2026, 10, 25, 11, 0).astimezone().timestamp()
        assert now - moment("12:00", now) == 24 * 3_600
        assert local(moment("12:00", now)) == "2026-10-24 12:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (119.4, "119 s"), (120, "2 min"), (7_199, "2 h 0 min"), (11_580, "3 h 13 min"),
     (172_800, "2 d 0 h"), (187_200, "2 d 4 h")],
)  # fmt: skip
def test_lengths_of_time_as_they_are_read(seconds, shown) -> None:
    assert length_of_time(seconds) == shown
