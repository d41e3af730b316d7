"""Blocks into mdoc."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from man.typeset.inline import term_arguments, text_lines, verbatim
from man.typeset.source import Block, Directive, Entries, Heading, Paragraph, Verbatim

WIDEST_TERM = 12


def block_lines(blocks: Iterable[Block]) -> list[str]:
    """The lines of a section's body. Directives must have been filled in before."""
    lines: list[str] = []
    for block in blocks:
        apart = bool(lines) and not lines[-1].startswith((".Ss", ".Pp"))
        match block:
            case Heading(text):
                lines.append(f".Ss {text}" + "\\&" * (text[-1] in ".)]"))
            case Paragraph(text):
                lines += [".Pp"] * apart + text_lines(text)
            case Verbatim(shown, wide):  # it sets itself apart
                lines.append(".Bd -literal" if wide else ".Bd -literal -offset indent")
                lines += [verbatim(line) for line in shown] + [".Ed"]
            case Entries():
                lines += [".Pp"] * (apart and block.compact) + _entry_lines(block)
            case Directive(name):
                raise ValueError(f"nothing fills in {{{name}}}")
    return lines


def _entry_lines(entries: Entries) -> list[str]:
    compact = " -compact" if entries.compact else ""
    if entries.items[0].term is None:
        lines = [f".Bl -bullet{compact}"]
        for item in entries.items:
            lines += [".It", *text_lines(item.text)]
        return [*lines, ".El"]
    lines = [f".Bl -tag -width {_width([item.term or '' for item in entries.items])}{compact}"]
    for item in entries.items:
        lines += [f".It {term_arguments(item.term or '')}", *text_lines(item.text)]
    return [*lines, ".El"]


def _width(terms: Sequence[str]) -> str:
    """Room for the terms, unless they are so long that their text starts a line below."""
    longest = max(len(term.replace("`", "").replace("*", "")) for term in terms)
    return f"{longest + 1}n" if longest < WIDEST_TERM else "Ds"
