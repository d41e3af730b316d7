"""The glyphs of the console, and their ASCII twins; states and ages as glyph, word and ink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from k3ctl.tui.ink import Ink, Line, Span

STATE_INKS: dict[str, Ink] = {
    "healthy": "good",
    "degraded": "warn",
    "down": "bad",
    "unknown": "warn",
    "alert": "bad",
    "warning": "warn",
    "note": "quiet",
}


@dataclass(frozen=True)
class Marks:
    """What the terminal can show. Every glyph takes one column."""

    ascii: bool
    states: Mapping[str, str]
    rule: str
    upright: str
    branch: str
    last_branch: str
    cursor: str
    more: str
    separator: str
    up: str
    down: str
    track: str
    fill: str
    full: str
    degree: str
    times: str

    def state(self, state: str, *, word: bool = True) -> Line:
        """A state as glyph and word in its ink."""
        glyph = self.states.get(state, "?")
        text = f"{glyph} {state}" if word else glyph
        return (Span(text, STATE_INKS.get(state, "warn")),)

    def celsius(self, degrees: float | None) -> str:
        return "-" if degrees is None else f"{degrees:.0f} {self.degree}C"


UNICODE = Marks(
    ascii=False,
    states={
        "healthy": "●", "degraded": "◐", "down": "○", "unknown": "?",
        "alert": "▲", "warning": "△", "note": "·",
    },
    rule="─", upright="│", branch="├", last_branch="└", cursor="▌", more="…", separator="·",
    up="↑", down="↓", track="─", fill="━", full="█", degree="°", times="×",
)  # fmt: skip
ASCII = Marks(
    ascii=True,
    states={
        "healthy": "+", "degraded": "~", "down": "-", "unknown": "?",
        "alert": "!", "warning": "*", "note": ".",
    },
    rule="-", upright="|", branch="|", last_branch="`", cursor=">", more="~", separator="-",
    up="^", down="v", track=".", fill="=", full="#", degree="", times="x",
)  # fmt: skip


def marks_for(environment: Mapping[str, str] | None = None) -> Marks:
    """ASCII where K3_ASCII or the locale asks for it."""
    values = os.environ if environment is None else environment
    if values.get("K3_ASCII"):
        return ASCII
    locale = values.get("LC_ALL") or values.get("LC_CTYPE") or values.get("LANG") or ""
    return ASCII if locale in ("C", "POSIX") else UNICODE
