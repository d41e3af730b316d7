"""The verbs of k3d, as argparse knows them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from man.typeset.commands import Argument, Command, Option


def walk(
    parser: argparse.ArgumentParser, words: tuple[str, ...], description: str = ""
) -> Iterator[Command]:
    """The parser's verbs, or itself where it has none."""
    branches = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    if not branches:
        yield _command(parser, words, description)
    for branch in branches:
        said = {choice.dest: choice.help or "" for choice in branch._choices_actions}
        for name, found in branch.choices.items():
            yield from walk(found, (*words, name), said.get(name, ""))


def _command(parser: argparse.ArgumentParser, words: tuple[str, ...], said: str) -> Command:
    options = [_option(action) for action in parser._actions if action.option_strings]
    arguments = [_argument(action) for action in parser._actions if not action.option_strings]
    return Command(words, said, tuple(options), tuple(arguments))


def _option(action: argparse.Action) -> Option:
    takes_nothing = action.nargs == 0
    default = action.default
    said = not takes_nothing and isinstance(default, (str, int, float))
    return Option(
        flags=tuple(action.option_strings),
        argument=None if takes_nothing else _metavar(action),
        help=_help(action),
        default=f"{default:g}" if said and isinstance(default, float) else (
            str(default) if said else None
        ),
        required=action.required,
        repeatable=isinstance(action, argparse._AppendAction),
    )  # fmt: skip


def _argument(action: argparse.Action) -> Argument:
    return Argument(
        name=_metavar(action),
        help=_help(action),
        required=action.nargs not in ("?", "*"),
        repeatable=action.nargs in ("*", "+"),
    )


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices:
        return "|".join(str(choice) for choice in action.choices)
    return action.dest.upper().replace("_", "-")
