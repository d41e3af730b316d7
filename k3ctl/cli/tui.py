"""k3ctl tui: the console, live."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import click

from k3ctl.cli.options import Invocation, Real, home_options
from k3ctl.cli.output import stdin_is_terminal, stdout_is_terminal
from k3d.errors import K3Error, Refused

INSTALL = "pip install 'k3pod[tui]'"
THEMES = ("k3-dark", "k3-light", "ansi", "mono")
LEAST_INTERVAL_S = 0.25


@click.command
@click.option(
    "--interval",
    type=Real(LEAST_INTERVAL_S, 60.0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two frames; the Station takes one a second.",
)
@click.option(
    "--theme",
    type=click.Choice(THEMES),
    help="Colours (else k3-dark, ansi where the terminal has 16 colours, mono under NO_COLOR).",
)
@click.option("--mouse/--no-mouse", default=True, help="Take clicks and the wheel, or leave them.")
@click.option(
    "--write",
    is_flag=True,
    help="Allow changes where the Station is not on this machine; else they are not there.",
)
@click.option("--read-only", is_flag=True, help="Allow no changes at all.")
@home_options
@click.pass_obj
def tui(
    invocation: Invocation,
    interval: float,
    theme: str | None,
    mouse: bool,
    write: bool,
    read_only: bool,
) -> int:
    """Open the console: the pod on this terminal, live.

    `?` shows the keys, q leaves. Needs a terminal and the tui extra; in a pipe use
    `k3ctl top --once`. NO_COLOR and K3_ASCII are heeded.
    """
    reason = missing()
    if reason is not None:
        raise reason
    return open_console(
        invocation.home, interval_s=interval, theme=theme, mouse=mouse, write=write,
        read_only=read_only,
    )  # fmt: skip


def missing() -> K3Error | None:
    """Why there can be no console here: no terminal, or no textual."""
    if not (stdin_is_terminal() and stdout_is_terminal()):
        return Refused("the console needs a terminal", hint="without one: k3ctl top --once")
    if os.environ.get("TERM", "dumb") == "dumb":
        return Refused(
            "the console needs a terminal that can move its cursor; TERM is dumb",
            hint="without one: k3ctl top --once",
        )
    if importlib.util.find_spec("textual") is None:
        return K3Error("the console needs the tui extra", hint=f"install it: {INSTALL}")
    return None


def open_console(
    home: Path,
    *,
    interval_s: float = 1.0,
    theme: str | None = None,
    mouse: bool = True,
    write: bool = False,
    read_only: bool = False,
) -> int:
    """Show the console of a home until it is left; the exit code."""
    from k3ctl.client.frames import LiveFrames, RecordedFrames
    from k3ctl.tui.run import run_console
    from k3ctl.tui.writing import WriteGuard

    guard = WriteGuard(home, write=write, read_only=read_only)
    return run_console(
        LiveFrames(home), history=lambda: RecordedFrames(home), home=home, guard=guard,
        interval_s=interval_s, theme=theme, mouse=mouse,
    )  # fmt: skip
