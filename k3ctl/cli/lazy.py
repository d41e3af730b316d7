"""A command group that imports a command only when it is run or asked for help."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Verb(NamedTuple):
    """Where a command is, and its line in the group's help."""

    module: str
    attribute: str
    summary: str


MOST_SUMMARY = 200


def meant(name: str, known: Iterable[str]) -> str | None:
    """The question whether the nearest of the known names was meant; None when none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else None


def _all_of(known: Iterable[str]) -> str:
    return f"there are {', '.join(known)}"


class NounGroup(click.Group):
    """A group that says what there is: whole sentences in its help, and names in its errors."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown name tells the nearest known one, or all of them."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(
                f"there is no command {name!r}; {meant(name, known) or _all_of(known)}", ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (name, command.get_short_help_str(MOST_SUMMARY))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(NounGroup):
    """A group whose commands are named in a table."""

    def __init__(self, *arguments: Any, verbs: Mapping[str, Verb], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.verbs = verbs

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and flags, from the table: as click, without importing a command for its help."""
        from click.shell_completion import CompletionItem

        offered = [
            CompletionItem(name, help=verb.summary)
            for name, verb in self.verbs.items()
            if name.startswith(incomplete)
        ]
        return offered + click.Command.shell_complete(self, ctx, incomplete)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return None
        command = getattr(importlib.import_module(verb.module), verb.attribute)
        if ctx.resilient_parsing:  # a shell asks what may come next
            from k3ctl.cli.completion import teach

            teach(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in self.verbs.items()])
