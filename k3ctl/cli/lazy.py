"""A command group that imports a command only when it is run or asked for help."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click


class Verb(NamedTuple):
    """Where a command is, and its line in the group's help."""

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are named in a table."""

    def __init__(self, *arguments: Any, verbs: Mapping[str, Verb], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return None
        return getattr(importlib.import_module(verb.module), verb.attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown name lists the known ones."""
        name = args[0]
        if name not in self.verbs and not name.startswith("-"):
            raise click.UsageError(
                f"there is no command {name!r}; there are {', '.join(self.verbs)}", ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in self.verbs.items()])
