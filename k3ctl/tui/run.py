"""Run the console on a source of frames."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from k3ctl.client.frames import FrameSource
from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.feed import Recorded
from k3ctl.tui.station_calls import StationCalls
from k3ctl.tui.writing import WriteGuard

COLLECT_AFTER = (20_000, 10, 20)
"""Objects made, then collections of the youngest and of the middle generation."""


def run_console(
    source: FrameSource | Recorded,
    *,
    home: Path | None = None,
    guard: WriteGuard | None = None,
    history: Callable[[], Recorded] | None = None,
    interval_s: float = 1.0,
    theme: str | None = None,
    mouse: bool = True,
    start_ms: int | None = None,
) -> int:
    """Show the console until the person leaves it; the exit code.

    A `Recorded` source is replayed, from `start_ms` (Unix milliseconds) or its end. `history`
    opens what was recorded before, so that the charts of a live console do not begin empty; it is
    called in the feed's thread. `guard` says whether anything may be changed. Needs a terminal:
    see `k3ctl.cli.tui`.
    """
    live = StationCalls(home) if home is not None else None
    with _stderr_on_terminal(), _size_of_terminal(), _rare_collections():
        app = ConsoleApp(
            source, live=live, guard=guard, history=history, home=home, interval_s=interval_s,
            theme=theme, start_ms=start_ms,
        )  # fmt: skip
        app.run(mouse=mouse)
    return app.return_code or 0


@contextlib.contextmanager
def _size_of_terminal() -> Iterator[None]:
    """Textual takes COLUMNS and LINES for the size. Where they were exported they stay what they
    were, whatever becomes of the window; the terminal itself knows."""
    kept = {name: os.environ.pop(name, None) for name in ("COLUMNS", "LINES")}
    try:
        yield
    finally:
        os.environ.update({name: value for name, value in kept.items() if value is not None})


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """A key waits while cyclic garbage is looked for: what was imported is left out of the search,
    and it is made when a few frames of a large pod have come, not many times in each."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def _stderr_on_terminal() -> Iterator[None]:
    """Textual draws on stderr; where that was sent elsewhere, it borrows stdout's terminal."""
    if os.isatty(2):
        yield
        return
    kept = os.dup(2)
    os.dup2(1, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
