"""k3ctl trace record: which experts the tokens of live traffic choose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from k3ctl.cli.options import (
    Invocation,
    Real,
    Seconds,
    home_options,
    json_option,
    mutation_options,
)
from k3ctl.cli.progress import Progress
from k3d.counted import counted
from k3d.errors import ConfigError, ExitCode, K3Error


@click.command()
@click.argument("out", metavar="OUT", required=False)
@click.option(
    "--tokens",
    type=click.IntRange(1, 10**9),
    default=100_000,
    show_default=True,
    help="Most tokens to record.",
)
@click.option(
    "--seconds",
    type=Seconds(0.1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time to record.",
)
@click.option(
    "--share",
    type=Real(0.001, 1.0),
    default=1.0,
    show_default=True,
    help="Share of the passes to record.",
)
@click.option(
    "--weights/--no-weights", default=True, show_default=True, help="The router's weights, too."
)
@click.option("--wait/--detach", default=True, show_default=True, help="Return when it has ended.")
@click.option("--stop", is_flag=True, help="End the recording under way; what it has is kept.")
@mutation_options(files=("out",))
@home_options
@json_option
@click.pass_obj
def record(
    invocation: Invocation,
    out: str | None,
    tokens: int,
    seconds: float,
    share: float,
    weights: bool,
    wait: bool,
    stop: bool,
) -> int:
    """Record a trace of the running pod's traffic.

    It ends at a number of tokens, after a time, with --stop, or on an interrupt, and is a file
    only then.
    """
    from k3ctl.client.recording import begin_recording, end_recording, wait_for_recording

    home = invocation.home
    if stop:
        return _show(invocation, end_recording(home))
    if out is None:
        raise ConfigError("trace record: no file is named", hint="k3ctl trace record OUT")
    there = Path(out).exists()
    asked: dict[str, Any] = {"path": str(Path(out).absolute()), "tokens": tokens}
    begun = begin_recording(home, {**asked, "seconds": seconds, "share": share, "weights": weights})
    if not wait:
        if there:
            invocation.output.note(f"{out} is there and is replaced when the recording ends")
        return _show(invocation, begun)
    try:
        with Progress(invocation.output) as progress:
            ended = wait_for_recording(home, lambda now: progress(*how_far(now, tokens, seconds)))
    except KeyboardInterrupt:
        ended = end_recording(home)
    if there and ended["state"] == "done":
        invocation.output.note(f"replaced {out}")
    return _show(invocation, ended)


def how_far(now: Mapping[str, Any], tokens: int, seconds: float) -> tuple[str, float]:
    """Words, and the part that is done of whichever ends the recording: tokens or time."""
    time_s = min(now["seconds"], seconds)
    told = f"{counted(now['tokens'], 'token')} of {tokens:,}"
    return f"{told} in {time_s:.1f} of {seconds:.1f} s", min(
        1.0, max(now["tokens"] / tokens, time_s / seconds)
    )


def _show(invocation: Invocation, document: dict[str, Any]) -> int:
    document.pop("schema", None)
    output = invocation.output
    output.document("k3ctl.trace-record/1", document)
    if document["state"] == "failed":
        output.error(
            K3Error(
                f"the trace was not recorded: {document['reason']}",
                hint="a trace holds what is asked while it is recorded: k3ctl chat, then again",
            )
        )
        return ExitCode.FAILED
    left_out = f", {document['left_out']:,} left out" if document["left_out"] else ""
    output.text(
        f"{document['path']}: {document['state']}, {counted(document['tokens'], 'token')} of "
        f"{counted(document['passes'], 'pass', 'passes')} in {document['seconds']:.1f} s{left_out}"
    )
    return ExitCode.OK
