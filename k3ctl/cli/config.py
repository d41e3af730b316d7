"""k3ctl config: what k3ctl does by default, from where, and whether its files are right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from k3ctl.cli.config_flags import flag_faults
from k3ctl.cli.lazy import NounGroup
from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.table import Column, Columns
from k3ctl.client.config import Value, faults, read_configuration
from k3ctl.client.config_files import paths, read_file
from k3d.errors import ConfigError

VALUES = Columns(
    "settings",
    (
        Column("name", lambda value: value.name),
        Column("origin", lambda value: value.origin),
        Column("value", lambda value: value.shown),
    ),
)
FILES = Columns("files", (Column("state", "state"), Column("path", "path")))


@click.group(cls=NounGroup)
def config() -> None:
    """Show what k3ctl does by default, and check its files.

    k3ctl.toml is looked for in the home, in $XDG_CONFIG_HOME/k3 and in /etc/k3; a key of the first
    goes before that of the next, a variable before all of them and a flag before that. Its keys are
    home, colour and ascii, and a table for each verb with defaults of its flags:

    \b
        colour = "never"
        [pod.up]
        deadline = 900
    """


@config.command()
@columns_options(VALUES)
@home_options
@json_option
@click.pass_context
def show(context: click.Context) -> None:
    """Show every setting in force and where it is from."""
    invocation: Invocation = context.obj
    root = context.find_root().command
    assert isinstance(root, click.Group)
    home = invocation.home
    found = read_configuration(home, lambda content: flag_faults(root, content))
    values = [_home(invocation, found.settings["home"], home)]
    values += [value for name, value in found.settings.items() if name != "home"]
    values += [
        Value(".".join(words), _at(found.flags, words), origin)
        for words, origin in found.origins.items()
    ]
    invocation.output.document(
        "k3ctl.config-show/1",
        {
            "files": [str(path) for path in found.files],
            "settings": [
                {"name": value.name, "value": value.shown, "origin": value.origin}
                for value in values
            ],
        },
    )
    invocation.listed((VALUES, values), otherwise=lambda: VALUES.lines(values))


@config.command()
@click.argument("file", required=False, metavar="[FILE]")
@columns_options(FILES)
@home_options
@json_option
@click.pass_context
def validate(context: click.Context, file: str | None) -> None:
    """Check the files in force, or one that is named. The exit code is 2 when one is wrong."""
    invocation: Invocation = context.obj
    root = context.find_root().command
    assert isinstance(root, click.Group)
    named = [Path(file)] if file is not None else paths(_home_or_default(invocation))
    checked = [_checked(root, path) for path in named]
    if file is not None and checked[0]["state"] == "absent":
        raise ConfigError(f"there is no file {file}", hint="see: k3ctl config path")
    found = [each for each in checked if each["state"] != "absent"]
    output = invocation.output
    output.document("k3ctl.config-validate/1", {"files": found})
    invocation.listed(
        (FILES, found),
        otherwise=lambda: FILES.lines(found) if found else ["there is no file: all is as built"],
    )
    wrong = [f"{each['path']}: {fault}" for each in found for fault in each["faults"]]
    if wrong:
        for fault in wrong[:-1] if output.text_wanted else ():
            output.note(fault)
        raise ConfigError(wrong[-1], hint="correct it, then: k3ctl config validate")


@config.command()
@columns_options(FILES)
@home_options
@json_option
@click.pass_obj
def path(invocation: Invocation) -> None:
    """Show the places of k3ctl.toml, the first one in force over the next."""
    places = [
        {"path": str(place), "state": "there" if place.exists() else "absent"}
        for place in paths(_home_or_default(invocation))
    ]
    invocation.output.document("k3ctl.config-path/1", {"files": places})
    invocation.listed((FILES, places), otherwise=lambda: FILES.lines(places))


def _home(invocation: Invocation, said: Value, home: Path) -> Value:
    if invocation.home_flag:
        return Value("home", str(home), "--home")
    return Value("home", str(home), said.origin)


def _home_or_default(invocation: Invocation) -> Path:
    """The home; where a file that cannot be read would have to say, the one without it."""
    try:
        return invocation.home
    except ConfigError:
        from k3d.store.paths import resolve_home

        return resolve_home(invocation.home_flag)


def _checked(root: click.Group, path: Path) -> dict[str, Any]:
    try:
        content = read_file(path)
    except ConfigError as error:
        return {"path": str(path), "state": "wrong", "faults": [_without_path(error, path)]}
    if content is None:
        return {"path": str(path), "state": "absent", "faults": []}
    wrong = list(faults(path, content, lambda tables: flag_faults(root, tables)))
    return {"path": str(path), "state": "wrong" if wrong else "sound", "faults": wrong}


def _without_path(error: ConfigError, path: Path) -> str:
    return error.message.removeprefix(f"{path} ")


def _at(tree: Mapping[str, Any], words: tuple[str, ...]) -> Any:
    for word in words:
        tree = tree[word]
    return tree
