"""Pages of the manual from their sources and the code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from k3ctl.cli.help import ENVIRONMENT
from k3ctl.cli.main import VERBS, k3ctl
from k3d import __version__
from k3d.main import _parser as k3d_parser
from man.typeset import argument_parser, click_tree
from man.typeset.commands import (
    Command,
    Option,
    option_entries,
    shared_options,
    synopsis_lines,
)
from man.typeset.mdoc import block_lines
from man.typeset.sections import exit_codes, fill_in
from man.typeset.source import (
    Block,
    Heading,
    Paragraph,
    Source,
    SourceError,
    Verbatim,
    read_source,
)

ROOT = Path(__file__).resolve().parents[1]
DATE = "November 30, 2026"
REPORT_A_STATE = ("k3ctl-health", "k3ctl-status")
ORDER = (
    "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT", "FILES", "EXIT STATUS",
    "EXAMPLES", "DIAGNOSTICS", "SEE ALSO", "CAVEATS", "BUGS",
)  # fmt: skip
"""Of a page's sections, as mdoc(7) has it. Others of a source come before ENVIRONMENT."""


@dataclass(frozen=True)
class Page:
    """A page ready to be written, under man/man1 or its like."""

    source: Source
    commands: tuple[Command, ...]
    text: str

    @property
    def path(self) -> Path:
        return ROOT / f"man{self.source.number}" / f"{self.source.name}.{self.source.number}"


def k3ctl_commands() -> tuple[Command, ...]:
    """Every command of k3ctl that can be run, k3ctl itself first."""
    return tuple(click_tree.walk(k3ctl, ("k3ctl",)))


def k3d_commands() -> tuple[Command, ...]:
    return tuple(argument_parser.walk(k3d_parser(), ("k3d",)))


def make_pages(sources: Path = ROOT / "source") -> list[Page]:
    """Every page. Raises SourceError for a source that is no page and a verb without one."""
    everything = k3ctl_commands()
    everywhere = shared_options(everything[1:])
    read = {path.name: read_source(path) for path in sorted(sources.glob("*.md"))}
    missing = [verb for verb in VERBS if f"k3ctl-{verb}.1.md" not in read]
    if missing:
        raise SourceError(f"{sources}: no page for {', '.join(missing)}")
    pages = []
    for source in read.values():
        commands, everywhere_here = _commands_of(source, everything), everywhere
        if source.name == "k3d":
            commands = k3d_commands()
            everywhere_here = shared_options(commands)
        pages.append(Page(source, commands, _typeset(source, commands, everywhere_here)))
    return pages


def _commands_of(source: Source, everything: Sequence[Command]) -> tuple[Command, ...]:
    """The commands that a page is about: k3ctl alone, those of a verb, or none."""
    if source.name == "k3ctl":
        return (everything[0],)
    verb = source.name.removeprefix("k3ctl-")
    found = tuple(c for c in everything[1:] if c.words[1] == verb)
    if source.name.startswith("k3ctl-") and not found:
        raise SourceError(f"{source.name}({source.number}): k3ctl has no command {verb!r}")
    return found


def _typeset(source: Source, commands: tuple[Command, ...], everywhere: Sequence[Option]) -> str:
    sections: dict[str, list[str]] = {"NAME": [f".Nm {source.name}", f".Nd {source.summary}"]}
    if commands:
        sections["SYNOPSIS"] = _synopsis(source, commands, everywhere)
        sections["OPTIONS"] = _options(commands)
        states = source.name in REPORT_A_STATE
        sections["EXIT STATUS"] = block_lines([exit_codes(states=states)])
    sections["DESCRIPTION"] = block_lines(_description(source, commands))
    if commands and "ENVIRONMENT" not in source.sections:
        sections["ENVIRONMENT"] = block_lines([Paragraph(_environment())])
    for name in source.sections:
        if name in ("DESCRIPTION", "OPTIONS", "SYNOPSIS"):
            continue
        body = block_lines(fill_in(source.sections[name]))
        between = [".Pp"] if name in sections and not body[0].startswith(".Bl") else []
        sections[name] = sections.get(name, []) + between + body
    lines = [
        f".\\\" Made by `make man` from man/source/{source.name}.{source.number}.md and the code.",
        f".Dd {DATE}", f".Dt {source.name.upper()} {source.number}", f".Os k3pod {__version__}",
    ]  # fmt: skip
    for name in sorted(sections, key=_place):
        lines += [f".Sh {name}", *sections[name]]
    return "\n".join(lines) + "\n"


def _place(section: str) -> float:
    return ORDER.index(section) if section in ORDER else ORDER.index("ENVIRONMENT") - 0.5


def _synopsis(
    source: Source, commands: Sequence[Command], everywhere: Sequence[Option]
) -> list[str]:
    if source.name == "k3ctl":
        everywhere = [option for option in everywhere if "--help" in option.flags]
    lines = synopsis_lines([_without(command, everywhere) for command in commands])
    return [*lines, ".Op Ar COMMAND", ".Op Ar ..."] if source.name == "k3ctl" else lines


def _without(command: Command, options: Sequence[Option]) -> Command:
    kept = tuple(option for option in command.options if option not in options)
    return Command(command.words, command.description, kept, command.arguments)


def _description(source: Source, commands: tuple[Command, ...]) -> list[Block]:
    """The page's own words, then each command's help and what the page adds to it."""
    if len(commands) < 2:
        own = _help(commands[0]) if commands and source.name != "k3ctl" else []
        return [*own, *fill_in(source.sections.get("DESCRIPTION", ()))]
    blocks = fill_in(source.part("DESCRIPTION", None))
    names = {" ".join(command.words[1 if source.name == "k3d" else 2 :]) for command in commands}
    for heading in source.headings("DESCRIPTION"):
        if heading not in names:
            raise SourceError(f"{source.name}: DESCRIPTION has no command {heading!r}")
    for command in commands:
        heading = " ".join(command.words[1 if source.name == "k3d" else 2 :])
        blocks += [Heading(command.name), *_help(command)]
        blocks += fill_in(source.part("DESCRIPTION", heading))
    return blocks


def _help(command: Command) -> list[Block]:
    """A command's help as blocks; \\b marks what click leaves as it is."""
    blocks: list[Block] = []
    for paragraph in command.description.split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":
            blocks.append(Verbatim(tuple(lines[1:]), wide=True))
        elif paragraph.strip():
            text = " ".join(paragraph.split())
            ended = text if text.endswith((".", ":", ")")) else f"{text}."
            blocks.append(Paragraph(ended[:1].upper() + ended[1:]))
    return blocks


def _options(commands: tuple[Command, ...]) -> list[str]:
    """A list a command, and at the end what all of them take."""
    if len(commands) == 1:
        return block_lines([option_entries(commands[0].options, commands[0].arguments)])
    shared = shared_options(commands)
    lines: list[str] = []
    for command in commands:
        own = tuple(option for option in command.options if option not in shared)
        if own:
            lines += block_lines([Heading(command.name), option_entries(own, command.arguments)])
    return [*lines, *block_lines([Heading("Options of each"), option_entries(shared)])]


def _environment() -> str:
    names = [f"`{name}`" for name in ENVIRONMENT]
    return f"{', '.join(names[:-1])} and {names[-1]}: see k3ctl(1)."
