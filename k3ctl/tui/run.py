"""Run the console on a source of frames."""

from __future__ import annotations

from pathlib import Path

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.feed import FrameSource, Recorded


def run_console(
    source: FrameSource | Recorded,
    *,
    interval_s: float = 1.0,
    theme: str | None = None,
    mouse: bool = True,
    read_only: str | None = None,
    history: Recorded | None = None,
    home: Path | None = None,
    start_ms: int | None = None,
) -> int:
    """Show the console until the person leaves it; the exit code.

    A `Recorded` source is replayed, from `start_ms` (Unix milliseconds) or its end. `history`
    fills the charts of a live console with what was recorded before. `read_only` says why nothing
    may be changed. Needs a terminal: see `k3ctl.cli.tui`.
    """
    app = ConsoleApp(
        source, interval_s=interval_s, theme=theme, read_only=read_only, history=history,
        home=home, start_ms=start_ms,
    )  # fmt: skip
    app.run(mouse=mouse)
    return app.return_code or 0
