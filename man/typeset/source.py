"""A page's source: a few kinds of Markdown, read into blocks.

# k3ctl-pod(1): bring a pod up          the page and its one line
## DESCRIPTION                          a section
### up                                  a part of it
text, `literal`, *ARGUMENT*, k3d(8)     a paragraph; what is indented by four is shown as it is
`term`                                  a term, and
: what it is                            its definition
- an item                               a list
{exit-codes}                            what the code fills in; see sections.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_TITLE = re.compile(r"# ([a-z0-9.-]+)\((\d)\): (.+)")
_DIRECTIVE = re.compile(r"\{([a-z-]+)((?: \S+)*)\}")
INDENT = "    "


class SourceError(Exception):
    """A source that is no page; the sentence names file and line."""


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Verbatim:
    """Lines shown as they are, set in from the text unless they are as wide as a page."""

    lines: tuple[str, ...]
    wide: bool = False


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Item:
    """An entry of a list. The term is None in a list without terms."""

    term: str | None
    text: str


@dataclass(frozen=True)
class Entries:
    items: tuple[Item, ...]
    compact: bool = False


@dataclass(frozen=True)
class Directive:
    name: str
    arguments: tuple[str, ...]


Block = Paragraph | Verbatim | Heading | Entries | Directive


@dataclass(frozen=True)
class Source:
    """A page as it is written: its name, section, one line, and sections in their order."""

    name: str
    number: int
    summary: str
    sections: dict[str, tuple[Block, ...]]

    def part(self, section: str, heading: str | None) -> tuple[Block, ...]:
        """The blocks of a section under a heading of it; before the first, for None."""
        found: list[Block] = []
        current: str | None = None
        for block in self.sections.get(section, ()):
            if isinstance(block, Heading):
                current = block.text
            elif current == heading:
                found.append(block)
        return tuple(found)

    def headings(self, section: str) -> tuple[str, ...]:
        blocks = self.sections.get(section, ())
        return tuple(block.text for block in blocks if isinstance(block, Heading))


def read_source(path: Path) -> Source:
    """Read a page's source. Raises SourceError, OSError."""
    lines = path.read_text(encoding="utf-8").splitlines()
    title = _TITLE.fullmatch(lines[0] if lines else "")
    if title is None:
        raise SourceError(f"{path}: the first line is not '# name(1): what it is'")
    if path.name != f"{title[1]}.{title[2]}.md":
        raise SourceError(f"{path}: it is the page {title[1]}({title[2]})")
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for number, line in enumerate(lines[1:], start=2):
        if line.startswith("## "):
            current = sections.setdefault(line[3:], [])
        elif current is not None:
            current.append(line)
        elif line.strip():
            raise SourceError(f"{path}:{number}: text before the first section")
    blocks = {name: read_blocks(body) for name, body in sections.items()}
    return Source(title[1], int(title[2]), title[3], blocks)


def read_blocks(lines: list[str]) -> tuple[Block, ...]:
    """Blocks of lines, set apart by empty lines or by what they begin with."""
    blocks: list[Block] = []
    rest = list(lines)
    while rest:
        if not rest[0].strip():
            rest.pop(0)
        elif rest[0].startswith(INDENT):
            blocks.append(Verbatim(_take_verbatim(rest)))
        elif rest[0].startswith("### "):
            blocks.append(Heading(rest.pop(0)[4:]))
        elif found := _DIRECTIVE.fullmatch(rest[0]):
            rest.pop(0)
            blocks.append(Directive(found[1], tuple(found[2].split())))
        elif rest[0].startswith("- ") or (len(rest) > 1 and rest[1].startswith(": ")):
            blocks.append(Entries(_take_items(rest)))
        else:
            blocks.append(Paragraph(" ".join(_take_text(rest))))
    return tuple(blocks)


def _take_verbatim(rest: list[str]) -> tuple[str, ...]:
    taken: list[str] = []
    while rest and (rest[0].startswith(INDENT) or not rest[0].strip()):
        taken.append(rest.pop(0)[len(INDENT) :])
    while not taken[-1].strip():
        taken.pop()
    return tuple(taken)


def _take_text(rest: list[str]) -> list[str]:
    taken = [rest.pop(0)]
    while rest and rest[0].strip() and not rest[0].startswith((INDENT, "## ", "### ", "- ", "{")):
        taken.append(rest.pop(0).strip())
    return taken


def _take_items(rest: list[str]) -> tuple[Item, ...]:
    """Items until a block that is none. Lines of an item after its first are indented by two."""
    items: list[Item] = []
    while rest:
        if rest[0].startswith("- "):
            term, first = None, rest.pop(0)[2:]
        elif len(rest) > 1 and rest[1].startswith(": "):
            term, first = rest.pop(0), rest.pop(0)[2:]
        else:
            break
        taken = [first]
        while rest and rest[0].startswith("  ") and not rest[0].startswith(INDENT):
            taken.append(rest.pop(0).strip())
        items.append(Item(term, " ".join(taken)))
        while rest and not rest[0].strip():
            rest.pop(0)
    return tuple(items)
