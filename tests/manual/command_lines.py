"""Command lines as documents hold them: found, cut into commands, and read by their parsers."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from k3ctl.cli.main import k3ctl
from k3ctl.cli.options import Invocation
from k3d.main import _parser
from man.typeset.source import Verbatim, read_blocks

OURS = ("k3ctl", "k3d", "make", "pip", "git", ".")
_SPAN = re.compile(r"`([^`]+)`")
_FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.M | re.S)
_OPERATORS = {"&&", "||", "|", ";", ";;", "&", "(", ")", "<", ">", ">>"}


@dataclass(frozen=True)
class Line:
    """A command line. `shown` is one that the reader is to type; else it is named in passing."""

    document: str
    text: str
    shown: bool


def lines_of(path: Path) -> list[Line]:
    """Every command line of a document, in order; comments behind them are gone."""
    text = path.read_text(encoding="utf-8")
    found = [Line(path.name, each, True) for each in _shown(text)]
    spans = [" ".join(span.split()) for span in _SPAN.findall(_FENCE.sub("", text))]
    named = [span for span in dict.fromkeys(spans) if span.split(" ")[0] in OURS]
    return found + [Line(path.name, span, False) for span in named]


def examples_of(path: Path) -> list[str]:
    """Whole files that a document shows: what is indented and has no command line."""
    blocks = read_blocks(path.read_text(encoding="utf-8").splitlines())
    shown = [block.lines for block in blocks if isinstance(block, Verbatim)]
    files = [lines for lines in shown if not any(line.startswith("$ ") for line in lines)]
    return ["\n".join(lines) + "\n" for lines in files]


def _shown(text: str) -> list[str]:
    """What is typed: lines behind a prompt with those that continue them, and lines in fences."""
    lines: list[str] = []
    for block in read_blocks(_FENCE.sub("", text).splitlines()):
        if isinstance(block, Verbatim):
            prompted = False
            for line in block.lines:
                if line.startswith("$ "):
                    prompted = True
                    lines.append(line[2:])
                elif prompted and line.startswith("  "):
                    lines[-1] += f"\n{line}"
                else:
                    prompted = False
    for language, fenced in _FENCE.findall(text):
        typed = fenced.splitlines() if language in ("", "sh") else []
        ours = [line for line in typed if line.split(" ")[0] in OURS]
        lines += [re.sub(r"\s+# .*", "", line) for line in ours]
    return lines


def commands_of(line: str) -> list[list[str]]:
    """The words of each k3ctl and k3d command in a line of shell."""
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if word in _OPERATORS:
            skip = word in (">", ">>", "<")
            if not skip:
                commands.append([])
        elif not skip:
            commands[-1].append(word)
        else:
            skip = False
    return [words for words in commands if words and words[0] in ("k3ctl", "k3d")]


def complaint(words: list[str], whole: bool) -> str | None:
    """What k3ctl's or k3d's parser says against a command; None when it is one.

    Of a command that is not `whole` the arguments may be missing.
    """
    try:
        if words[0] == "k3d":
            return _k3d_complaint(words[1:], whole)
        return _k3ctl_complaint(words[1:], whole)
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()


def _k3ctl_complaint(words: list[str], whole: bool) -> str | None:
    obj = Invocation()
    context = k3ctl.make_context("k3ctl", list(words), obj=obj, resilient_parsing=not whole)
    command: click.Command = k3ctl
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            runs = command.invoke_without_command or not whole
            return None if runs else f"{context.command_path} lacks a verb"
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        if isinstance(found, click.Group) or whole:
            context = found.make_context(
                name, rest, parent=context, obj=obj, resilient_parsing=not whole
            )
        else:
            flags = {flag for parameter in found.params for flag in parameter.opts}
            flags |= {flag for parameter in found.params for flag in parameter.secondary_opts}
            unknown = [word for word in rest if word.startswith("--") and word not in flags]
            return f"no such option: {unknown[0]}" if unknown else None
        command = found
    return None


def _k3d_complaint(words: list[str], whole: bool) -> str | None:
    parser = _parser()
    if not whole:
        help_ = io.StringIO()
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(help_):
            parser.parse_args([*[word for word in words if not word.startswith("-")], "--help"])
        named = [word for word in words if word.startswith("--")]
        unknown = [word for word in named if word not in help_.getvalue()]
        return f"no such option: {unknown[0]}" if unknown or not help_.getvalue() else None
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(words)
    except SystemExit:
        return said.getvalue().splitlines()[-1]
    return None
