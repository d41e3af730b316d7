"""k3ctl top: the pod, live."""

from __future__ import annotations

import collections
import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from k3ctl.cli.options import (
    Invocation,
    Real,
    columns_options,
    home_options,
    json_option,
    jsonl_option,
)
from k3ctl.cli.output import stdout_is_terminal, unicode_shown
from k3ctl.cli.screen_size import screen_size
from k3ctl.cli.top_tables import LANES, NODES, TIERS
from k3d.errors import ConfigError
from k3d.store.frame import Frame, encode

if TYPE_CHECKING:
    from k3ctl.client.frame_watch import FrameSource, Seen

LEAST_INTERVAL_S = 0.25
REMEMBERED = 240
LATE_INTERVALS = 3.0
KEYS = "q quits"


@click.command
@click.option("--once", is_flag=True, help="One frame, and end.")
@click.option(
    "--interval",
    "interval_s",
    type=Real(min=LEAST_INTERVAL_S, max=3_600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look, 0.25 at least: the Station takes a frame a second.",
)
@click.option(
    "-n", "--frames", type=click.IntRange(min=1), help="End after so many frames of --jsonl."
)
@columns_options(NODES, TIERS, LANES)
@home_options
@json_option
@jsonl_option
@click.pass_obj
def top(invocation: Invocation, once: bool, interval_s: float, frames: int | None) -> None:
    """Show rates, nodes, tiers, lanes and what needs attention, as it changes.

    On a terminal it redraws until q. In a pipe, with --once or --json it shows one frame, with
    --jsonl a frame a line. All figures shown are those of the document of --json.
    """
    from k3ctl.client.frame_watch import frame_with_rates
    from k3ctl.client.frames import LiveFrames

    output = invocation.output
    if frames is not None and output.form != "jsonl":
        raise ConfigError("-n counts the frames of --jsonl", hint="use --jsonl, or --once")
    with contextlib.closing(LiveFrames(invocation.home)) as source:
        first = frame_with_rates(source)
        if output.form == "jsonl":
            _stream(invocation, source, first, interval_s, 1 if once else frames)
        elif once or output.form == "json" or invocation.columns or not redrawable():
            show_frame(invocation, "k3ctl.top/1", first)
        else:
            _watch(source, first, interval_s)


def frame_document(frame: Frame) -> dict[str, Any]:
    """A frame as --json shows it: all of it, in base units."""
    document = msgspec.json.decode(encode(frame), type=dict)
    del document["schema"]
    return document


def show_frame(invocation: Invocation, schema: str, frame: Frame) -> None:
    """One frame, in the form that was asked for."""
    from k3ctl.cli.top_lines import top_lines

    document = frame_document(frame)
    invocation.output.document(schema, document)
    width, _ = screen_size()
    invocation.listed(
        (NODES, document["nodes"]),
        (TIERS, document["tiers"]),
        (LANES, document["lanes"]),
        otherwise=lambda: top_lines(document, width),
    )


def redrawable() -> bool:
    """Whether stdout is a terminal that can be drawn over."""
    return stdout_is_terminal() and os.environ.get("TERM", "dumb") != "dumb"


def _stream(
    invocation: Invocation,
    source: FrameSource,
    first: Frame,
    interval_s: float,
    most: int | None,
) -> None:
    """A frame a line, each once."""
    for number, frame in enumerate(_each_once(source, first, interval_s), start=1):
        invocation.output.record({"type": "frame", **frame_document(frame)})
        if number == most:
            return


def _each_once(source: FrameSource, first: Frame, interval_s: float) -> Iterator[Frame]:
    frame, shown_ms = first, None
    while True:
        if frame.at_ms != shown_ms:
            yield frame
            shown_ms = frame.at_ms
        time.sleep(interval_s)
        frame = source.latest()


def _watch(source: FrameSource, first: Frame, interval_s: float) -> None:
    """Redraw until q. A Station that is lost is waited for, its last frame shown with its age."""
    from k3ctl.cli.live_screen import LiveScreen
    from k3ctl.client.frame_watch import FrameWatch

    rates: collections.deque[float | None] = collections.deque(maxlen=REMEMBERED)
    with LiveScreen() as screen:
        watch = FrameWatch(source, interval_s, screen.wake, first)
        watch.start()
        try:
            shown_ms = None
            while True:
                seen = watch.seen
                if seen.frame is not None and seen.frame.at_ms != shown_ms:
                    rates.append(seen.frame.decode_tokens_per_s)
                    shown_ms = seen.frame.at_ms
                screen.draw(_screen(seen, rates, interval_s))
                if "q" in screen.wait(max(1.0, interval_s)).lower():
                    return
        finally:
            watch.close()


def _screen(seen: Seen, rates: collections.deque[float | None], interval_s: float) -> list[str]:
    from k3ctl.charts.sparkline import sparkline
    from k3ctl.cli.top_lines import top_lines

    assert seen.frame is not None
    width, height = screen_size()
    state = KEYS
    late = seen.age_s > LATE_INTERVALS * interval_s
    if seen.error is not None:
        state = f"{KEYS}; LOST, this is {seen.age_s:.0f} s old: {seen.error.message}"
    elif late:
        state = f"{KEYS}; LATE, this is {seen.age_s:.0f} s old"
    label = "decode "
    curve = sparkline(list(rates), width - len(label), not unicode_shown())
    lines = top_lines(frame_document(seen.frame), width, height - 2)
    return [*lines[: height - 2], f"{label}{curve}", state[:width]][:height]
