"""What is on the screen, and waiting for it."""

from __future__ import annotations

from typing import Any

from k3ctl.tui.app import ConsoleApp
from tests.tui.driven import until
from tests.tui.screen_text import screen_lines


def text(app: Any) -> str:
    return "\n".join(screen_lines(app))


async def shows(app: ConsoleApp, pilot: Any, *words: str) -> None:
    """Wait until all of these are on the screen."""
    await until(pilot, lambda: all(each in text(app) for each in words))
