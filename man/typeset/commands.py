"""What a command line takes, whether click or argparse reads it, and its mdoc."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from man.typeset.inline import escape, flag_call
from man.typeset.source import Entries, Item


@dataclass(frozen=True)
class Option:
    """An option. `other` are the flags that say the opposite, as --detach does of --wait."""

    flags: tuple[str, ...]
    argument: str | None
    help: str
    default: str | None = None
    other: tuple[str, ...] = ()
    required: bool = False
    repeatable: bool = False


@dataclass(frozen=True)
class Argument:
    """A positional argument as it is named; brackets and dots are kept beside the name."""

    name: str
    help: str = ""
    required: bool = True
    repeatable: bool = False


@dataclass(frozen=True)
class Command:
    """A command that can be run. `words` are its name, program first; `description` its help."""

    words: tuple[str, ...]
    description: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]

    @property
    def name(self) -> str:
        return " ".join(self.words)


def shared_options(commands: Sequence[Command]) -> tuple[Option, ...]:
    """Options that every one of several commands takes, the same in each."""
    if len(commands) < 2:
        return ()
    return tuple(
        option
        for option in commands[0].options
        if all(option in command.options for command in commands)
    )


def synopsis_lines(commands: Sequence[Command]) -> list[str]:
    lines: list[str] = []
    for command in commands:
        lines.append(f".Nm {command.words[0]}")
        lines += [f".Cm {' '.join(command.words[1:])}"] * (len(command.words) > 1)
        lines += [_bracketed(_usage(option), option) for option in command.options]
        lines += [_argument_usage(argument) for argument in command.arguments]
    return lines


def option_entries(options: Sequence[Option], arguments: Sequence[Argument] = ()) -> Entries:
    """A list with an entry an option, after those arguments that have words of their own."""
    explained = [
        Item(_starred(argument.name), _sentence(argument.help))
        for argument in arguments
        if argument.help
    ]
    return Entries((*explained, *(_entry(option) for option in options)))


def _entry(option: Option) -> Item:
    sides = [", ".join(_flag(flag, option) for flag in option.flags)]
    sides += [", ".join(_flag(flag, option) for flag in option.other)] * bool(option.other)
    words = [_sentence(option.help)]
    if option.repeatable and "repeat" not in option.help:
        words.append("May be repeated.")
    if option.required:
        words.append("Must be given.")
    if option.default is not None:
        words.append(f"The default is {_default(option.default)}.")
    return Item(" | ".join(sides), " ".join(word for word in words if word))


def _flag(flag: str, option: Option) -> str:
    argument = "" if option.argument is None else f" {_starred(option.argument)}"
    return f"`{flag}`{argument}"


def _starred(argument: str) -> str:
    """Names of arguments starred, and what is typed as it stands marked so, as in inline.py."""
    return "|".join(f"*{part}*" if part[:1].isupper() else f"`{part}`" for part in _split(argument))


def _split(argument: str) -> list[str]:
    return argument.strip("[]").split("|")


def _default(value: str) -> str:
    return f"`{value}`" if " " not in value else value


def _sentence(help_: str) -> str:
    text = help_.strip()
    if not text:
        return ""
    text = text[:1].upper() + text[1:]
    return text if text[-1] in ".?!" else f"{text}."


def _usage(option: Option) -> str:
    """The option as the synopsis shows it: its longest flag, with its argument."""
    chosen = [max(option.flags, key=len), *option.other[:1]]
    argument = _argument_call(option.argument)
    calls = [flag_call(flag) + (f" {argument}" if argument else "") for flag in chosen]
    return " | ".join(calls)


def _argument_call(argument: str | None) -> str:
    if argument is None:
        return ""
    calls = [f"{'Ar' if part[:1].isupper() else 'Cm'} {_roff(part)}" for part in _split(argument)]
    return " | ".join(calls)


def _bracketed(call: str, option: Option) -> str:
    return f".{call}" if option.required else f".Op {call}"


def _argument_usage(argument: Argument) -> str:
    call = _argument_call(argument.name) + " ..." * argument.repeatable
    return f".{call}" if argument.required else f".Op {call}"


def _roff(text: str) -> str:
    return escape(text).replace("-", "\\-")
