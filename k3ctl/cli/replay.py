"""k3ctl replay: the console on what was recorded."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import click

from k3ctl.cli.options import (
    Invocation,
    Real,
    columns_options,
    home_options,
    json_option,
    jsonl_option,
)
from k3ctl.cli.output import stdin_is_terminal
from k3ctl.cli.top import frame_document, redrawable, show_frame
from k3ctl.cli.top_tables import LANES, NODES, TIERS
from k3ctl.cli.tui import THEMES, missing
from k3ctl.client.moments import EXAMPLES, moment
from k3d.errors import ConfigError

if TYPE_CHECKING:
    from k3ctl.client.replayed import Replayed

MOST_LINES = 100_000


@click.command
@click.option(
    "--at",
    default="now",
    metavar="TIME",
    help=f"The moment to begin at, else the newest: {EXAMPLES.removeprefix('write ')}.",
)
@click.option("--until", metavar="TIME", help="Where the replay ends.")
@click.option(
    "--speed",
    type=Real(min=0.1, max=3_600),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="How much faster than it was; beyond 4 frames are left out.",
)
@click.option("--theme", type=click.Choice(THEMES), help="Colours, as those of `k3ctl tui`.")
@click.option("--mouse/--no-mouse", default=True, help="Take clicks and the wheel, or leave them.")
@click.option("--once", is_flag=True, help="Print the frame of that moment, and end.")
@columns_options(NODES, TIERS, LANES)
@home_options
@json_option
@jsonl_option
@click.pass_obj
def replay(
    invocation: Invocation,
    at: str,
    until: str | None,
    speed: float,
    theme: str | None,
    mouse: bool,
    once: bool,
) -> int:
    """Show the console as it was: step and seek in what the Station recorded.

    Without a terminal, with --once or --json it prints the frame of that moment as `k3ctl top`
    does; --jsonl prints every frame from there to --until. No daemon need run.
    """
    from k3ctl.client.records import open_recording
    from k3ctl.client.replayed import Pace, Replayed, frame_at

    now_s = time.time()
    at_ms = round(moment(at, now_s) * 1000)
    last_ms = None if until is None else round(moment(until, now_s) * 1000)
    if last_ms is not None and last_ms < at_ms:
        raise ConfigError(f"--until {until} is before --at {at}", hint=EXAMPLES)
    output = invocation.output
    with contextlib.closing(open_recording(invocation.home)) as recording:
        first = frame_at(recording, at_ms)
        if output.form == "jsonl":
            end_ms = last_ms if last_ms is not None else round(now_s * 1000)
            frames = [first] if once else recording.between(first.at_ms, end_ms, MOST_LINES)
            for frame in frames:
                output.record({"type": "frame", **frame_document(frame)})
            return 0
        asked_for_one = once or output.form == "json" or invocation.columns is not None
        if asked_for_one or not redrawable() or not stdin_is_terminal():
            show_frame(invocation, "k3ctl.replay/1", first)
            return 0
        pace = Pace.of(speed)
        replayed = Replayed(recording, None, last_ms, pace.step_ms)
        return _console(invocation, replayed, first.at_ms, pace.interval_s, theme, mouse)


def _console(
    invocation: Invocation,
    replayed: Replayed,
    start_ms: int,
    interval_s: float,
    theme: str | None,
    mouse: bool,
) -> int:
    reason = missing()
    if reason is not None:
        raise reason
    from k3ctl.tui.run import run_console

    return run_console(
        replayed,
        home=invocation.home,
        interval_s=interval_s,
        theme=theme,
        mouse=mouse,
        start_ms=start_ms,
    )
