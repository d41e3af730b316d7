"""k3ctl logs: the daemons' logs, merged by time."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click

from k3ctl.cli.options import Invocation, home_options, json_option, jsonl_option
from k3ctl.cli.output import paint
from k3ctl.client.daemon_log import LEVELS, LogEntry, LogReader, log_files, merged
from k3d.errors import ConfigError, NotFound
from k3d.store.run_file import log_path

POLL_S = 0.2
_COLOURS = {"warning": "yellow", "error": "red", "critical": "red", "debug": "dim"}


@click.command
@click.argument("names", nargs=-1, metavar="[NODE...]")
@click.option(
    "-n",
    "lines",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Newest lines to show.",
)
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only these nodes.")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come, until interrupted.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="This level or worse.")
@home_options
@json_option
@jsonl_option
@click.pass_obj
def logs(
    invocation: Invocation,
    names: tuple[str, ...],
    lines: int,
    nodes: tuple[str, ...],
    follow: bool,
    level: str,
) -> None:
    """Show the newest log lines of the nodes named, or of all, merged by time."""
    output, home = invocation.output, invocation.home
    nodes = tuple(dict.fromkeys(names + nodes))
    if follow and output.form == "json":
        raise ConfigError("--json is one document and --follow never ends", hint="use --jsonl")
    paths = [log_path(home, node) for node in nodes] if nodes else log_files(home)
    missing = [node for node in nodes if "/" in node or not log_path(home, node).exists()]
    if missing or not paths:
        known = ", ".join(path.stem for path in log_files(home))
        raise NotFound(
            f"there is no log of {', '.join(missing)}" if missing else f"no logs in {home}/run",
            hint=f"there are logs of {known}" if known else "start the pod: k3ctl pod up",
        )
    readers = [LogReader(path) for path in paths]

    def show(entries: Iterable[LogEntry]) -> None:
        for entry in entries:
            output.record(entry.as_json())
            output.text(
                paint(entry.as_text(), _COLOURS[entry.level])
                if entry.level in _COLOURS
                else entry.as_text()
            )

    kept = _at_least(merged(readers), level)
    newest = kept[-lines:] if lines else []
    output.document("k3ctl.logs/1", {"entries": [entry.as_json() for entry in newest]})
    show(newest)
    while follow:
        time.sleep(POLL_S)
        show(_at_least(merged(readers), level))


def _at_least(entries: Iterable[LogEntry], level: str) -> list[LogEntry]:
    """Entries of a level or a worse one; a level that is not known counts as worst."""
    lowest = LEVELS.index(level)
    return [
        entry
        for entry in entries
        if entry.level not in LEVELS or LEVELS.index(entry.level) >= lowest
    ]
