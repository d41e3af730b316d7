"""Options that every verb takes, before the verb or after it, and what they set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from k3ctl.cli.output import Output
from k3d.store.paths import resolve_home

A_YEAR_S = 365 * 86_400
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass
class Invocation:
    """One run of k3ctl: its home and its output."""

    home_flag: str | None = None
    output: Output = field(default_factory=Output)

    @property
    def home(self) -> Path:
        return resolve_home(self.home_flag)


class Real(click.FloatRange):
    """A number of a range; unlike click's, never NaN or infinite, which no range keeps out."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number that can be used.", param, ctx)
        return number


class Seconds(Real):
    """A time to wait, of a year at most: the system's own clocks end somewhere."""

    name = "seconds"

    def __init__(self, least: float = 0) -> None:
        super().__init__(min=least)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = super().convert(value, param, ctx)
        if seconds > A_YEAR_S:
            self.fail(f"{value} is longer than a year.", param, ctx)
        return seconds


def _set_home(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.obj.home_flag = value


def _set_quiet(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.obj.output.quiet = True


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.obj.output.form = "json"


def _set_jsonl(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.obj.output.form = "jsonl"


def home_options(command: Decorated) -> Decorated:
    """--home and -q."""
    command = click.option(
        "--home",
        metavar="DIR",
        expose_value=False,
        callback=_set_home,
        help="The pod's home (else $K3_HOME, the checkout, or the XDG state directory).",
    )(command)
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_set_quiet,
        help="No words on stderr but errors.",
    )(command)


def json_option(command: Decorated) -> Decorated:
    """--json."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_set_json,
        help="One JSON document on stdout; errors as JSON on stderr.",
    )(command)


def jsonl_option(command: Decorated) -> Decorated:
    """--jsonl."""
    return click.option(
        "--jsonl",
        is_flag=True,
        expose_value=False,
        callback=_set_jsonl,
        help="One JSON object a line, as things happen.",
    )(command)
