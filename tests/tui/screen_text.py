"""A screen as the lines of text that a person sees; and golden files of them.

K3_GOLDEN=write writes the golden files anew instead of comparing; look at the difference before it
is committed. Colours are left out, so a screen that needs them to be understood looks wrong here.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.style import Style
from textual.app import App
from textual.pilot import Pilot

GOLDEN = Path(__file__).parent / "golden"
VARIABLE = "K3_GOLDEN"
LOOK_S = 0.02
DEADLINE_S = 20.0
MOST_LOOKS = 100


def screen_lines(app: App[Any]) -> list[str]:
    """What the terminal shows, without blanks at the ends of lines."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def screen_styles(app: App[Any]) -> Iterable[tuple[str, Style | None]]:
    """Pieces of text with the style the terminal would be sent, after the app's filters."""
    filters = list(app.get_line_filters())
    background = app.screen.background_colors[1]
    for strip in app.screen._compositor.render_strips():
        for each in filters:
            strip = strip.apply_filter(each, background)
        for segment in strip:
            yield segment.text, segment.style


async def settled(pilot: Pilot[Any]) -> None:
    """Wait until what was posted has been handled and the screen stays as it is."""
    before: list[str] | None = None
    for _ in range(MOST_LOOKS):
        await pilot.pause()
        await pilot.pause(LOOK_S)
        shown = screen_lines(pilot.app)
        if shown == before:
            return
        before = shown


async def shows_golden(pilot: Pilot[Any], name: str) -> None:
    """Wait until the screen is that of tests/tui/golden/NAME.txt; fails with the difference."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get(VARIABLE) != "write" and path.is_file():
        wanted = path.read_text(encoding="utf-8").rstrip("\n")
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if "\n".join(screen_lines(pilot.app)).rstrip("\n") == wanted:
                return
            await pilot.pause(LOOK_S)
    check_golden(name, screen_lines(pilot.app))


def check_golden(name: str, lines: list[str]) -> None:
    """Compare with tests/tui/golden/NAME.txt, or write it."""
    path = GOLDEN / f"{name}.txt"
    text = "\n".join(lines).rstrip("\n") + "\n"
    if os.environ.get(VARIABLE) == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    assert path.is_file(), f"no golden file {path.name}; write it with {VARIABLE}=write"
    shown = path.read_text(encoding="utf-8")
    difference = "\n".join(
        difflib.unified_diff(shown.splitlines(), text.splitlines(), "golden", "shown", lineterm="")
    )
    assert text == shown, f"{path.name}; {VARIABLE}=write if it should differ\n{difference}"
