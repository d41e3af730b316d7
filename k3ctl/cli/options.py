"""Options that every verb takes, before the verb or after it, and what they set."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from k3ctl.cli.output import Output
from k3ctl.client.config_files import home_in_force
from k3d.errors import ConfigError, K3Error

if TYPE_CHECKING:
    from k3ctl.cli.table import Chosen, Columns

A_YEAR_S = 365 * 86_400
ELSE = "else the pod that runs here, or embedded"
"""What a command that is given no pod takes (`k3ctl.client.pod_run.pod_meant`)."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass
class Invocation:
    """One run of k3ctl: its home, its output, the columns and the request it was asked for."""

    home_flag: str | None = None
    output: Output = field(default_factory=Output)
    columns: Chosen | None = None
    request_id: str | None = None
    trouble: K3Error | None = None
    """What is wrong with k3ctl.toml, if it cannot be used."""

    @property
    def home(self) -> Path:
        return home_in_force(self.home_flag)

    def listed(
        self, *tables: tuple[Columns, Iterable[Any]], otherwise: Callable[[], Iterable[str]]
    ) -> None:
        """Show the columns that -H, -p and -o ask for; without them, the lines for a person."""
        if not self.output.text_wanted:
            return
        wanted = self.columns
        if wanted is None:
            self.output.lines(otherwise())
            return
        found = wanted.table_of([columns for columns, _ in tables])
        rows = next(rows for columns, rows in tables if columns is found)
        self.output.lines(found.lines(rows, wanted.names, header=wanted.header, exact=wanted.exact))


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
        context.obj.home_flag = context.obj.output.home_flag = value


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


def columns_options(
    *tables: Columns | Callable[[], Sequence[Columns]],
) -> Callable[[Decorated], Decorated]:
    """-H, -p and -o for a verb that shows these tables; it shows them with `listed`.

    A function that gives them instead keeps them from being imported when nothing asks for them.
    """

    def known() -> list[Columns]:
        found: list[Columns] = []
        for table in tables:
            found += table() if callable(table) else [table]
        return found

    def decorate(command: Decorated) -> Decorated:
        @functools.wraps(command)
        def wrapped(*args: Any, no_header: bool, exact: bool, columns: str | None, **rest: Any):
            if no_header or exact or columns is not None:
                _choose(click.get_current_context().obj, known(), no_header, exact, columns)
            return command(*args, **rest)

        for option in (
            click.option("-o", "columns", metavar="COLUMN,...", cls=_ColumnsOption, known=known),
            click.option("-p", "exact", is_flag=True, help="Exact numbers, in base units."),
            click.option(
                "-H", "no_header", is_flag=True, help="No header, one tab between columns."
            ),
        ):
            option(wrapped)
        return wrapped  # type: ignore[return-value]

    return decorate


class _ColumnsOption(click.Option):
    """-o, whose help lists the columns; they are looked up when it is shown."""

    def __init__(self, *arguments: Any, known: Callable[[], list[Columns]], **settings: Any):
        self._known = known
        super().__init__(*arguments, **settings)

    @property
    def help(self) -> str | None:
        listed = "; ".join(f"of {table.rows}: {', '.join(table.names)}" for table in self._known())
        return f"Only these columns, {listed}."

    @help.setter  # noqa: A003 (its name in click)
    def help(self, _: str | None) -> None:
        """click sets what it was given: nothing."""


def _choose(
    invocation: Invocation, tables: list[Columns], no_header: bool, exact: bool,
    columns: str | None,
) -> None:  # fmt: skip
    """Note the columns asked for. Raises ConfigError for unknown ones, and beside JSON."""
    from k3ctl.cli.table import Chosen

    names = () if columns is None else tuple(name.strip() for name in columns.lower().split(","))
    chosen = Chosen(not no_header, exact, names)
    chosen.table_of(tables)
    if not invocation.output.text_wanted:
        raise ConfigError(
            "-H, -p and -o are for text; JSON has every column and exact numbers",
            hint=f"drop them, or --{invocation.output.form}",
        )
    invocation.columns = chosen


Question = Callable[[Invocation, Mapping[str, Any]], str | None]
"""What a verb is about to destroy, as the end of "this ..."; None when it destroys nothing."""


def mutation_options(
    *,
    dry_run: str | None = None,
    if_token: str | None = None,
    asks: Question | None = None,
    lock_wait: str | None = None,
    files: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    makes_home: bool = False,
) -> Callable[[Decorated], Decorated]:
    """The options of a verb that changes something, and what they promise.

    --request-id: of several copies with one id, one has the effect and the rest say so
    (k3d.store.requests). --lock-wait: how long to wait for that, and, with the help text given
    here, for the verb's own lock; the verb then takes `lock_wait` in seconds. `dry_run` and
    `if_token` are help texts of the options of those names, which the verb takes. `asks` says what
    would be lost: asked about on a terminal, refused elsewhere, unless there is --yes. `files` are
    parameters that name files, where the same name in another directory is another file, and
    `names` those that take a name or a file. A verb that `makes_home` has requests in one that is
    not there yet; elsewhere a home that is not there is not made for the sake of its requests.
    """

    def decorate(command: Decorated) -> Decorated:
        @functools.wraps(command)
        def wrapped(*args: Any, **given: Any) -> int:
            from k3ctl.cli.mutation import Mutation, carry_out

            invocation: Invocation = click.get_current_context().obj
            request_id, wait_s = given.pop("request_id"), given.pop("lock_wait")
            yes = given.pop("yes", False)
            mutation = Mutation(
                verb=" ".join(click.get_current_context().command_path.split()[1:]),
                parameters=dict(given),
                files=files,
                names=names,
                makes_home=makes_home,
                request_id=request_id,
                wait_s=wait_s,
                asks=None if yes else asks,
            )
            if lock_wait is not None:
                given["lock_wait"] = wait_s or 0.0
            return carry_out(invocation, mutation, lambda: command(*args, **given))

        options = [
            click.option(
                "--request-id",
                metavar="ID",
                help="A name for one change: of all copies with it one acts, the others say so.",
            ),
            click.option(
                "--lock-wait",
                type=Seconds(),
                metavar="SECONDS",
                help=lock_wait or "How long to wait for another copy of --request-id.",
            ),
        ]
        if asks is not None:
            options.append(click.option("--yes", is_flag=True, help="Do not ask."))
        if if_token is not None:
            options.append(click.option("--if-token", metavar="TOKEN", help=if_token))
        if dry_run is not None:
            options.append(click.option("--dry-run", is_flag=True, help=dry_run))
        for option in options:
            option(wrapped)
        return wrapped  # type: ignore[return-value]

    return decorate
