"""The parts that panes are made of."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import tracemalloc
from pathlib import Path

import pytest
from textual.message_pump import MessagePump

import k3ctl.tui
from k3ctl.tui.filter import parse_filter
from k3ctl.tui.goto import Place, find_place
from k3ctl.tui.ink import Span, beside, clean, cut, heading, line, pad, spread, text_of, width_of
from k3ctl.tui.marks import ASCII, STATE_INKS, UNICODE, marks_for
from k3ctl.tui.snapshot import freshness
from k3ctl.tui.station_calls import StationCalls
from k3ctl.tui.themes import THEMES, all_themes, inks, theme_for
from k3ctl.tui.trail import LENGTH, NODE_LENGTH, Trail
from k3ctl.tui.widgets.columns import Column, fitted
from k3ctl.tui.writing import WriteGuard, is_loopback
from k3d.errors import ConfigError, FabricError, NotFound
from k3d.store.run_file import RunFile
from tests.tui.simulated_pod import SimulatedPod


def test_lines_keep_their_width_whatever_is_in_them() -> None:
    for text in ("spark", "", "核心节点", "a核b", "x" * 50):
        for width in range(1, 12):
            padded = pad((Span(text),), width)
            assert width_of(padded) == width, (text, width)
            assert width_of(cut((Span(text),), width)) <= width
            assert width_of(spread((Span(text),), (Span("end"),), width + 5)) <= width + 5
    assert text_of(cut((Span("spark-1234"),), 6)) == "spark…"
    assert width_of(heading("Title", 40, line("note"))) == 40
    both = beside([line("a")], [line("b"), line("c")], 5)
    assert [text_of(each) for each in both] == ["a      b", "       c"]


def test_text_that_steers_is_spelled_out() -> None:
    assert clean("plain · text") == "plain · text"
    assert clean("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m"
    assert clean("a\nb\tc\x07\u202e") == "a b c\\x07\\u202e"


def test_every_state_is_a_glyph_of_its_own_and_a_word() -> None:
    for marks in (UNICODE, ASCII):
        for group in (("healthy", "degraded", "down", "unknown"), ("alert", "warning", "note")):
            texts = [text_of(marks.state(state)) for state in group]
            assert len({text[0] for text in texts}) == len(group)
            assert all(text.endswith(state) for text, state in zip(texts, group, strict=True))
        assert all(width_of((Span(glyph),)) == 1 for glyph in marks.states.values())
    assert all(glyph.isascii() for glyph in ASCII.states.values())


@pytest.mark.parametrize(
    ("environment", "ascii_only"),
    [({}, False), ({"K3_ASCII": "1"}, True), ({"LC_ALL": "C"}, True), ({"LC_ALL": "POSIX"}, True),
     ({"LANG": "C", "LC_ALL": "en_GB.UTF-8"}, False), ({"LANG": "C.UTF-8"}, False)],
)  # fmt: skip
def test_ascii_where_it_is_asked_for(environment: dict[str, str], ascii_only: bool) -> None:
    assert marks_for(environment).ascii == ascii_only


@pytest.mark.parametrize(
    ("wanted", "environment", "theme"),
    [(None, {"TERM": "xterm-256color"}, "k3-dark"), (None, {"TERM": "linux"}, "ansi"),
     (None, {"TERM": "screen", "COLORTERM": "truecolor"}, "k3-dark"),
     ("k3-light", {"NO_COLOR": "1"}, "mono"), ("k3-light", {"TERM": "linux"}, "k3-light"),
     (None, {"TERM": "vt100"}, "mono"), (None, {"NO_COLOR": "", "TERM": "xterm-256color"},
      "k3-dark")],
)  # fmt: skip
def test_the_theme_of_a_terminal(
    wanted: str | None, environment: dict[str, str], theme: str
) -> None:
    assert theme_for(wanted, environment) == theme


def test_themes_have_every_ink_and_mono_has_no_colour() -> None:
    assert [theme.name for theme in all_themes()] == list(THEMES)
    wanted = set(inks("k3-dark"))
    assert set(STATE_INKS.values()) <= wanted
    for theme in THEMES:
        assert set(inks(theme)) == wanted
    assert all(style.color is None and style.bgcolor is None for style in inks("mono").values())
    states = [inks("mono")[ink] for ink in ("good", "warn", "bad")]
    assert len(set(map(str, states))) == 3


def test_columns_give_way_by_rank() -> None:
    columns = (Column("a", "A"), Column("b", "B", drop=1), Column("c", "C", drop=2))
    assert fitted(columns, (10, 10, 10), 40) == [10, 10, 10]
    assert fitted(columns, (10, 10, 10), 25) == [10, 10, 0]
    assert fitted(columns, (10, 10, 10), 12) == [10, 0, 0]
    assert fitted(columns, (10, 10, 10), 6) == [6, 0, 0]


def test_freshness_by_intervals() -> None:
    found = [freshness(age_s, 1.0) for age_s in (0.0, 2.0, 2.1, 5.0, 5.1)]
    assert found == ["fresh", "fresh", "stale", "stale", "lost"]
    assert freshness(2.1, 4.0) == "fresh"


def test_a_trail_keeps_gaps_and_does_not_grow() -> None:
    pod = SimulatedPod(sparks=200)
    trail = Trail()
    tracemalloc.start()
    try:
        for number in range(NODE_LENGTH + 5):
            trail.add(pod.made(number))
        full = tracemalloc.get_traced_memory()[0]
        for number in range(NODE_LENGTH + 5, NODE_LENGTH + 65):
            trail.add(pod.made(number))
        assert tracemalloc.get_traced_memory()[0] - full < 300_000
    finally:
        tracemalloc.stop()
    assert len(trail.node("spark-1", "power_w")) == NODE_LENGTH
    assert set(trail.node("spark-13", "power_w")) == {None}
    assert None in trail.pod("prompt_tokens_per_s")
    assert trail.pod("power_w", 3) == trail.pod("power_w")[-3:]
    times = [at for at, _ in trail.points("power_w")]
    assert times == sorted(times)


def test_a_trail_is_a_ring() -> None:
    pod = SimulatedPod(sparks=1, faults=False)
    trail = Trail()
    for number in range(LENGTH + 50):
        trail.add(pod.made(number))
    trail.add(pod.made(LENGTH + 10))  # not newer: ignored
    points = trail.points("running")
    assert len(points) == LENGTH
    assert points[-1][0] * 1000 == pod.made(LENGTH + 49).at_ms
    assert points[0][0] * 1000 == pod.made(50).at_ms


@pytest.mark.parametrize(
    ("pattern", "kept", "left"),
    [("spark", "spark-1", "station"), ("!spark", "station", "spark-1"), ("SPARK", "SPARK", "spark"),
     ("^s.*1$", "spark-1", "spark-2"), ("!^s.*1$", "spark-2", "spark-1")],
)  # fmt: skip
def test_filters(pattern: str, kept: str, left: str) -> None:
    found = parse_filter(pattern)
    assert found is not None
    assert found.keeps(kept)
    assert not found.keeps(left)


def test_filters_that_are_none_and_that_are_wrong() -> None:
    assert parse_filter("  ") is None
    assert parse_filter("!") is None
    with pytest.raises(ConfigError, match="no regular expression"):
        parse_filter("a(")


def test_places_are_found_by_what_is_unambiguous() -> None:
    known = [Place("node", "spark-1"), Place("node", "spark-10"), Place("tier", "spark")]
    assert find_place("spark-1", known) == known[0]
    assert find_place("tier spark", known) == known[2]
    assert find_place("spark-10", known) == known[1]
    assert find_place("12/63", known) == Place("expert", "12/63")
    assert find_place("expert 12 63", known) == Place("expert", "12/63")
    with pytest.raises(NotFound, match="may be node spark-1, node spark-10"):
        find_place("node s", known)
    with pytest.raises(NotFound, match="there is no 'nope'"):
        find_place("nope", known)


@pytest.mark.parametrize(
    ("url", "here"),
    [("http://127.0.0.1:80", True), ("http://[::1]:80", True), ("http://localhost:1", True),
     ("http://10.0.0.2:80", False), ("http://station.example:80", False), ("nonsense", False)],
)  # fmt: skip
def test_what_is_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) == here


def test_a_far_station_is_read_only_unless_told_otherwise(home: Path) -> None:
    assert WriteGuard(home).reason() is None
    run = RunFile.of_this_process(
        name="station", role="station", http_host="10.0.0.9", http_port=9, fabric_address=None,
        pod="far",
    )  # fmt: skip
    run.write(home)
    reason = WriteGuard(home).reason()
    assert reason is not None
    assert "10.0.0.9" in reason
    assert "--write" in reason
    assert WriteGuard(home, write=True).reason() is None
    assert WriteGuard(home, write=True, read_only=True).reason() is not None


def test_calls_without_a_station_say_so(home: Path) -> None:
    with pytest.raises(FabricError, match="no Station runs"):
        StationCalls(home).placement()


def test_no_widget_shadows_what_textual_uses() -> None:
    """Textual keeps much in plain private attributes; no widget of ours may take their names."""
    allowed = {"__init__", "compose", "theme", "no_color", "value", "cursor_position"}
    for module in pkgutil.walk_packages(k3ctl.tui.__path__, "k3ctl.tui."):
        for found in vars(importlib.import_module(module.name)).values():
            ours = inspect.isclass(found) and found.__module__ == module.name
            if ours and issubclass(found, MessagePump):
                theirs = next(c for c in found.__mro__ if c.__module__.startswith("textual"))
                used = set().union(*(_assigned(c) for c in theirs.__mro__ if c is not object))
                clash = _assigned(found) & used - allowed - {"virtual_size"}
                assert not clash, (found.__name__, clash)


def _assigned(owner: type) -> set[str]:
    """Attributes that a class's own code assigns to self."""
    try:
        tree = ast.parse(inspect.getsource(owner))
    except (OSError, TypeError, IndentationError):
        return set()
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
