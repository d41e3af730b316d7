"""Every verb there is, from click's own tree: a new one is in every test that walks it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from k3ctl.cli.main import k3ctl

Words = tuple[str, ...]


def commands() -> list[tuple[Words, click.Command]]:
    """Words and command of every verb, without groups that do nothing themselves."""
    return list(_walk(k3ctl, click.Context(k3ctl, info_name="k3ctl"), ()))


def mutating() -> list[tuple[Words, click.Command]]:
    """Those that change something: they take a request id."""
    return [
        (words, command)
        for words, command in commands()
        if any("--request-id" in parameter.opts for parameter in command.params)
    ]


def something_for(command: click.Command) -> list[str]:
    """Arguments and options that must be there; what they name need not exist."""
    words: list[str] = []
    for parameter in command.params:
        if not parameter.required:
            continue
        value = "nothing.json"
        if isinstance(parameter.type, click.Choice):
            value = str(parameter.type.choices[0])
        elif isinstance(parameter.type, click.types.IntParamType):
            value = "1"
        words += [value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]
    return words


def _walk(
    group: click.Group, context: click.Context, words: Words
) -> Iterator[tuple[Words, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield (*words, name), command
            below = click.Context(command, info_name=name, parent=context)
            yield from _walk(command, below, (*words, name))
        else:
            yield (*words, name), command
