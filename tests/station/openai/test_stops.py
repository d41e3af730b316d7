"""Stop strings: whatever the pieces, the same cut, and never a character of a stop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3d.station.openai.stops import StopScanner


def scanned(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    scanner = StopScanner(stops)
    out = ""
    for piece in pieces:
        found = scanner.push(piece)
        out += found.text
        if found.met is not None:
            return out, found.met
    return out + scanner.finish(), None


def by_definition(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """The match that completes first; of those, the one that began first."""
    for end in range(1, len(text) + 1):
        met = [stop for stop in stops if text[:end].endswith(stop)]
        if met:
            longest = max(met, key=len)
            return text[: end - len(longest)], longest
    return text, None


@pytest.mark.parametrize(
    ("stops", "text", "out", "met"),
    [
        (("a", "is", ","), "this, a", "th", "is"),
        (("DEFGHIJ",), "ABCDEFGHIJK", "ABC", "DEFGHIJ"),
        (("bc", "c"), "abc", "a", "bc"),
        (("abcd", "c"), "abcd", "ab", "c"),
        (("aab",), "aaab", "a", "aab"),
        (("\n\n",), "a\nb\n\nc", "a\nb", "\n\n"),
        (("👋",), "hi 👋 there", "hi ", "👋"),
        (("xyz",), "xy", "xy", None),
        ((), "anything", "anything", None),
    ],
)
def test_the_match_that_completes_first_wins(
    stops: tuple[str, ...], text: str, out: str, met: str | None
) -> None:
    for size in range(1, len(text) + 1):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert scanned(stops, pieces) == (out, met), size


@settings(deadline=None, database=None, max_examples=300)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_pieces_change_nothing(stops: list[str], pieces: list[str]) -> None:
    assert scanned(tuple(stops), pieces) == by_definition(tuple(stops), "".join(pieces))


def test_only_a_beginning_of_a_stop_is_held() -> None:
    scanner = StopScanner(("STOP",))
    assert scanner.push("a S").text == "a "
    assert scanner.held == 1
    assert scanner.push("T").text == ""
    assert scanner.push("x").text == "STx"
    assert scanner.held == 0
