"""Every verb there is, from click's own tree: a new one is in every test that walks it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from k3ctl.cli.main import k3ctl

Words = tuple[str, ...]


def commands() -> list[tuple[Words, click.Command]]:
    """Words and command of every verb, without the groups."""
    return list(_walk(k3ctl, click.Context(k3ctl, info_name="k3ctl"), ()))


def mutating() -> list[tuple[Words, click.Command]]:
    """Those that change something: they take a request id."""
    return [
        (words, command)
        for words, command in commands()
        if any("--request-id" in parameter.opts for parameter in command.params)
    ]


def _walk(
    group: click.Group, context: click.Context, words: Words
) -> Iterator[tuple[Words, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            below = click.Context(command, info_name=name, parent=context)
            yield from _walk(command, below, (*words, name))
        else:
            yield (*words, name), command
