"""--since and --until, and the moments they name."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from k3ctl.client.moments import EXAMPLES, Span, span

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def span_options(since: str) -> Callable[[Decorated], Decorated]:
    """--since, by default `since`, and --until, by default now. The verb takes both as texts and
    asks `chosen_span` for the moments."""

    def decorate(command: Decorated) -> Decorated:
        command = click.option(
            "--until", default="now", metavar="TIME", help="Where it ends; now by default."
        )(command)
        return click.option(
            "--since",
            default=since,
            metavar="TIME",
            show_default=True,
            help=f"Where it begins: {EXAMPLES.removeprefix('write ')}.",
        )(command)

    return decorate


def chosen_span(since: str, until: str) -> tuple[Span, float]:
    """The span between two texts, and the Unix second it was read at. Raises ConfigError."""
    now_s = time.time()
    return span(since, until, now_s), now_s
