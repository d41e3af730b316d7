"""The commands of k3ctl, as click knows them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click

from man.typeset.commands import Argument, Command, Option


def walk(
    command: click.Command, words: tuple[str, ...], parent: click.Context | None = None
) -> Iterator[Command]:
    """The command, or those of a group, in the group's order; groups that run count too."""
    context = click.Context(command, parent=parent, info_name=words[-1], **command.context_settings)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield _command(command, context, words)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            if not found.hidden:
                yield from walk(found, (*words, name), context)


def _command(command: click.Command, context: click.Context, words: tuple[str, ...]) -> Command:
    options = [
        _option(parameter)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    arguments = [
        _argument(parameter)
        for parameter in command.params
        if isinstance(parameter, click.Argument)
    ]
    return Command(words, inspect.cleandoc(command.help or ""), tuple(options), tuple(arguments))


def _option(option: click.Option) -> Option:
    default = option.default
    shown = None
    if not option.is_flag and not option.multiple and _is_said(default):
        shown = _number(default)
    elif option.is_flag and option.secondary_opts and isinstance(default, bool):
        shown = _longest(option.opts if default else option.secondary_opts)
    return Option(
        flags=tuple(option.opts),
        argument=None if option.is_flag or option.count else _metavar(option),
        help=(option.help or "").strip(),
        default=shown,
        other=tuple(option.secondary_opts),
        required=option.required,
        repeatable=option.multiple,
    )


def _argument(argument: click.Argument) -> Argument:
    name = argument.metavar or (argument.name or "").upper()
    return Argument(
        name=name.replace("...", "").strip("[]"),
        required=argument.required and not name.startswith("["),
        repeatable=argument.nargs == -1,
    )


def _metavar(option: click.Option) -> str:
    """What stands for an option's value: a choice's words, else its name in capitals."""
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(str(choice) for choice in option.type.choices)
    if isinstance(option.type, click.types.IntParamType):
        return "N"
    if isinstance(option.type, click.types.FloatParamType):
        return "NUMBER"
    if isinstance(option.type, (click.Path, click.File)):
        return "FILE"
    return (option.name or "TEXT").upper().replace("_", "-")


def _is_said(default: Any) -> bool:
    return isinstance(default, (str, int, float)) and default != ""


def _number(default: Any) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)


def _longest(flags: list[str]) -> str:
    return max(flags, key=len)
