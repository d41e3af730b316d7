"""k3ctl report: what ran, how fast, what was changed, what went wrong; on one page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from k3ctl.cli.options import Invocation, home_options, json_option
from k3ctl.cli.output import paint, unicode_shown
from k3ctl.cli.screen_size import screen_size
from k3ctl.cli.time_options import chosen_span, span_options
from k3ctl.client.whole_file import check_place, write_whole
from k3d.errors import ConfigError

if TYPE_CHECKING:
    from k3ctl.cli.page import Page

WIDTH = 80


@click.command
@span_options("24h")
@click.option("--out", metavar="FILE", help="Write the page there: FILE.html, FILE.md or FILE.txt.")
@home_options
@json_option
@click.pass_obj
def report(invocation: Invocation, since: str, until: str, out: str | None) -> None:
    """Tell on one page what ran, how fast, what was changed and what went wrong.

    From state.db, telemetry.db and the logs of the home; no daemon need run. The HTML page holds
    its charts and needs no other file. --json has all of it.
    """
    from k3ctl.cli.report_page import report_page
    from k3ctl.client.records import open_recording
    from k3ctl.client.report import build_report

    span, now_s = chosen_span(since, until)
    path, write = _writer(out)
    with contextlib.closing(open_recording(invocation.home)) as recording:
        found = build_report(invocation.home, span, recording, now_s)
    output = invocation.output
    document = found.as_json()
    page = report_page(found)
    if path is not None and write is not None:
        write_whole(path, write(page).encode())
        document["file"] = str(path)
        output.note(f"written: {path}")
    output.document("k3ctl.report/1", document)
    if path is None and output.text_wanted:
        from k3ctl.cli.page_text import page_lines

        width, _ = screen_size()
        lines = page_lines(
            page, width, plain=not unicode_shown(), heading=lambda text: paint(text, "bold")
        )
        output.lines(lines)


def _writer(out: str | None) -> tuple[Path | None, Callable[[Page], str] | None]:
    """Where the page goes and how it is written. Raises ConfigError for an ending without one."""
    if out is None:
        return None, None
    path = Path(out)
    written = {".html": _html, ".md": _markdown, ".txt": _text}.get(path.suffix.lower())
    if written is None:
        raise ConfigError(
            f"{out} is no .html, .md or .txt", hint="name it FILE.html, FILE.md or FILE.txt"
        )
    check_place(path)
    return path, written


def _html(page: Page) -> str:
    from k3ctl.cli.page_html import page_html

    return page_html(page)


def _markdown(page: Page) -> str:
    from k3ctl.cli.page_markdown import page_markdown

    return page_markdown(page, plain=False)


def _text(page: Page) -> str:
    from k3ctl.cli.page_text import page_lines

    return "".join(f"{line}\n" for line in page_lines(page, WIDTH, plain=False))
