"""k3ctl plot: what was recorded, over time, in the terminal or as a picture."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.plot_lines import history_lines
from k3ctl.cli.screen_size import screen_size
from k3ctl.cli.table import Column, Columns
from k3ctl.cli.time_options import chosen_span, span_options
from k3ctl.client.moments import local
from k3ctl.client.series import History
from k3ctl.client.whole_file import check_place, write_whole
from k3d.errors import ConfigError, NotFound

KINDS = ("latency", "tokens", "placement", "sensors")
PICTURES = (".png", ".svg")


def _value(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


POINTS = Columns(
    "points",
    (
        Column("at", "at_ms", lambda at_ms: local(at_ms / 1000)),
        Column("chart", "chart"),
        Column("series", "series"),
        Column(
            "value", "value", lambda value: "-" if value is None else f"{value:.6g}", right=True
        ),
        Column("unit", "unit"),
        Column("provenance", "provenance"),
    ),
)


@click.command
@click.argument("what", type=click.Choice(KINDS))
@span_options("6h")
@click.option("--node", metavar="NAME", help="Only this node: its hops, or all its sensors.")
@click.option("--tier", metavar="NAME", help="Only this tier.")
@click.option("--out", metavar="FILE", help="Draw a picture instead: FILE.png or FILE.svg.")
@columns_options(POINTS)
@home_options
@json_option
@click.pass_obj
def plot(
    invocation: Invocation,
    what: str,
    since: str,
    until: str,
    node: str | None,
    tier: str | None,
    out: str | None,
) -> None:
    """Draw what the pod recorded: latency, tokens, placement or sensors.

    The Station records while it runs; no daemon need run to draw it. -H, -p and -o print the
    points instead, one a line. Pictures want the extra `plot`: pip install 'k3pod[plot]'.
    """
    from k3ctl.client.histories import HISTORIES
    from k3ctl.client.records import open_recording, read_records

    span, now_s = chosen_span(since, until)
    path = _picture_path(out)
    with contextlib.closing(open_recording(invocation.home)) as recording:
        records = read_records(invocation.home, span, recording, now_s)
    records.require("history")
    history = HISTORIES[what](records, node, tier)
    if history.empty:
        raise _nothing_of(history)
    output = invocation.output
    document = history.as_json()
    if path is not None:
        from k3ctl.charts.picture import picture_bytes
        from k3ctl.client.shown_series import picture_of

        form = "svg" if path.suffix.lower() == ".svg" else "png"
        write_whole(path, picture_bytes(picture_of(history), form))
        document["file"] = str(path)
        output.note(f"drawn: {path}")
    output.document("k3ctl.plot/1", document)
    if path is None:
        width, height = screen_size()
        invocation.listed(
            (POINTS, _points(document)), otherwise=lambda: history_lines(history, width, height)
        )


def _picture_path(out: str | None) -> Path | None:
    if out is None:
        return None
    path = Path(out)
    if path.suffix.lower() not in PICTURES:
        raise ConfigError(
            f"{out} is neither a .png nor a .svg", hint="name it FILE.png or FILE.svg"
        )
    check_place(path)
    return path


def _nothing_of(history: History) -> NotFound:
    from k3ctl.client.shown_series import missing

    reasons = missing(history)
    return NotFound(
        f"nothing of {history.what} was recorded from {local(history.span.since_s)} to "
        f"{local(history.span.until_s)}",
        hint=reasons[0] if reasons else "a wider --since, or traffic: k3ctl chat",
    )


def _points(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row a point, as in the document."""
    for chart in document["charts"]:
        for series in chart["series"]:
            for at_ms, value in series["points"]:
                yield {
                    "at_ms": at_ms,
                    "chart": chart["name"],
                    "series": series["name"],
                    "value": value,
                    "unit": series["unit"],
                    "provenance": series["provenance"],
                }
