"""A conversation as lines: questions, reasoning, answers, and what each answer cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.cells import cell_len, chop_cells

from k3ctl.cli.output import tame
from k3ctl.tui.ink import BLANK, Ink, Line, Span
from k3ctl.tui.marks import Marks

TAB = "    "


@dataclass
class Turn:
    """A question and its answer. `note` is its figures or its error once it has ended."""

    question: str
    reasoning: str = ""
    text: str = ""
    note: str = ""
    failed: bool = False
    ended: bool = False
    _drawn: dict[tuple[int, bool], list[Line]] = field(default_factory=dict, repr=False)

    def lines(self, width: int, marks: Marks) -> list[Line]:
        """As it is shown; kept once it has ended."""
        if not self.ended:
            return list(self._draw(width, marks))
        key = (width, marks.ascii)
        if key not in self._drawn:
            self._drawn = {key: list(self._draw(width, marks))}
        return self._drawn[key]

    def _draw(self, width: int, marks: Marks) -> Iterator[Line]:
        first = Span(f"{marks.cursor} ", "accent")
        for number, text in enumerate(wrapped(self.question, width - 2)):
            yield (first if number == 0 else Span("  "), Span(text, "strong"))
        yield from _block(self.reasoning, width, "quiet")
        if self.reasoning and self.text:
            yield BLANK
        yield from _block(self.text, width, "plain")
        if not self.ended and not self.text and not self.reasoning:
            yield (Span(f"  {marks.more}", "quiet"),)
        for text in wrapped(self.note, width - 2) if self.note else ():
            yield (Span(f"  {text}", "bad" if self.failed else "quiet"),)
        yield BLANK


def _block(text: str, width: int, ink: Ink) -> Iterator[Line]:
    if text:
        for part in wrapped(text.strip("\n"), width - 2):
            yield (Span("  "), Span(part, ink)) if part else BLANK


def wrapped(text: str, width: int) -> list[str]:
    """Text in lines of at most `width` columns, its own line ends and indents kept. A word that is
    longer, as whole sentences are in some scripts, is cut where it must be."""
    lines: list[str] = []
    width = max(2, width)
    for given in tame(text).replace("\t", TAB).split("\n"):
        line, room = "", width
        for word in _words(given):
            size = cell_len(word)
            if size > room and line.strip():
                lines.append(line.rstrip())
                line, room = "", width
                word = word.lstrip()
                size = cell_len(word)
            while size > room:
                head = chop_cells(word, room)[0]
                lines.append(line + head)
                word, line, room = word[len(head) :], "", width
                size = cell_len(word)
            line, room = line + word, room - size
        lines.append(line.rstrip())
    return lines


def _words(text: str) -> Iterator[str]:
    """Words with the spaces before them."""
    start = 0
    for at in range(1, len(text)):
        if text[at] == " " and text[at - 1] != " ":
            yield text[start:at]
            start = at
    yield text[start:]
