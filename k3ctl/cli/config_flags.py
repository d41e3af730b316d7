"""Defaults of flags in k3ctl.toml: a table a verb, checked against the flags that there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from k3ctl.client.config import BY_NAME, unknown

SAID_EACH_TIME = frozenset(
    {"yes", "dry_run", "request_id", "if_token", "json", "jsonl", "home", "quiet", "help"}
)
"""Flags that are meant for one run and never for all."""


def flag_faults(root: click.Group, content: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the tables of verbs, a sentence each."""
    context = click.Context(root, info_name="k3ctl")
    for key, value in content.items():
        command = root.get_command(context, key)
        if command is None:
            yield unknown(key, [*BY_NAME, *root.list_commands(context)])
        else:
            yield from _faults(command, context, value, key)


def default_map(root: click.Group, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults as click takes them: by verb and by the name of the parameter."""
    context = click.Context(root, info_name="k3ctl")
    found = {}
    for key, value in flags.items():
        command = root.get_command(context, key)
        if command is not None:
            found[key] = _defaults(command, context, value)
    return found


def _faults(command: click.Command, parent: click.Context, table: Any, path: str) -> Iterator[str]:
    if not isinstance(table, Mapping):
        yield f"{path}: a verb has a table, [{path}]"
        return
    context = click.Context(command, info_name=command.name, parent=parent)
    for key, value in table.items():
        if isinstance(command, click.Group):
            below = command.get_command(context, key)
            if below is None:
                yield f"{path}: {unknown(key, command.list_commands(context))}"
            else:
                yield from _faults(below, context, value, f"{path}.{key}")
            continue
        option = _options(command).get(key)
        if option is None:
            yield f"{path}: {unknown(key, _options(command))}"
        else:
            wrong = _wrong(option, context, value)
            if wrong is not None:
                yield f"{path}.{key}: {wrong}"


def _options(command: click.Command) -> dict[str, click.Option]:
    """Flags that may have another default, by their long names as TOML keys."""
    found = {}
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        for name in option.opts:
            key = name.removeprefix("--").replace("-", "_")
            if name.startswith("--") and key not in SAID_EACH_TIME:
                found[key] = option
    return found


def _wrong(option: click.Option, context: click.Context, value: Any) -> str | None:
    if option.is_flag:
        return None if isinstance(value, bool) else f"{value!r} is neither true nor false"
    if option.multiple != isinstance(value, list):
        return "a list is wanted" if option.multiple else "one value is wanted"
    if isinstance(value, bool) or not isinstance(value, int | float | str | list):
        return f"{value!r} is no value for it"
    try:
        option.type_cast_value(context, value)
    except click.BadParameter as error:
        return error.message.rstrip(".")
    return None


def _defaults(command: click.Command, parent: click.Context, table: Any) -> dict[str, Any]:
    context = click.Context(command, info_name=command.name, parent=parent)
    if not isinstance(command, click.Group):
        options = _options(command)
        return {str(options[key].name): value for key, value in table.items()}
    found = {}
    for key, value in table.items():
        below = command.get_command(context, key)
        if below is not None:
            found[key] = _defaults(below, context, value)
    return found
