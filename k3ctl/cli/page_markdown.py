"""A page as Markdown. What comes from data is escaped: it makes no links, headings or HTML."""

from __future__ import annotations

import re

from k3ctl.cli.page import Block, Commands, Drawing, Grid, Page, Words, one_line
from k3ctl.cli.page_text import chart_lines

WIDTH = 80
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")
# What makes a heading, a list or a quotation at the start of a line, and nothing elsewhere.
_STARTING = re.compile(r"^(\s*|\s*\d+(?=[.)](?:\s|$)))([-+#=.)])")


def page_markdown(page: Page, *, plain: bool) -> str:
    """The whole document."""
    parts = [f"# {escaped(page.title)}", escaped(page.subtitle)]
    for section in page.sections:
        parts.append(f"## {escaped(section.title)}")
        parts += [_block(block, plain) for block in section.blocks]
    parts.append(f"---\n\n{escaped(page.footnote)}")
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _STARTING.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", one_line(text)))


def code(text: str) -> str:
    """Text as code on one line, in a fence longer than any run of backticks in it."""
    text = one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def _block(block: Block, plain: bool) -> str:
    match block:
        case Words(text):
            return escaped(text)
        case Grid():
            return _grid(block)
        case Drawing():
            return "```text\n" + "\n".join(chart_lines(block, WIDTH, plain=plain)) + "\n```"
        case Commands(lines):
            return "\n".join(f"- {code(command)}: {escaped(why)}" for command, why in lines)


def _grid(grid: Grid) -> str:
    columns = range(len(grid.headers))
    rule = ["---:" if grid.right[column : column + 1] == "r" else "---" for column in columns]
    rows = [[escaped(cell) for cell in row] for row in (grid.headers, *grid.rows)]
    lines = [rows[0], rule, *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
