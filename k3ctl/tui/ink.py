"""Lines of text with ink: what panes draw, before anything knows of a terminal.

A view is a plain function from a snapshot to lines. Ink says what a text means, never which colour
it has; the theme in force turns it into one, or into bold and dim where there are no colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len, set_cell_size

Ink = Literal[
    "plain", "quiet", "strong", "title", "accent", "good", "warn", "bad", "rule", "here", "curve",
    "heat-1", "heat-2", "heat-3", "heat-4", "heat-5",
    "hbm", "rtx", "grace", "spark",
]  # fmt: skip
"""plain: text; quiet: labels, units, what is old; strong: figures that matter; title: headings;
accent: what can be acted on, and big curves; curve: small ones; good, warn, bad: states;
rule: lines between things; here: the pane that is open; heat-1 to heat-5: little to much;
hbm, rtx, grace, spark: tiers."""

TIER_INKS: dict[str, Ink] = {"hbm": "hbm", "rtx": "rtx", "grace": "grace", "spark": "spark"}


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    ink: Ink = "plain"


Line = tuple[Span, ...]
Piece = str | Span | Line
BLANK: Line = ()


def line(*pieces: Piece) -> Line:
    """One line of pieces: plain texts, spans, or lines."""
    spans: list[Span] = []
    for piece in pieces:
        if isinstance(piece, str):
            if piece:
                spans.append(Span(clean(piece)))
        elif isinstance(piece, Span):
            if piece.text:
                known = piece.text.isprintable()
                spans.append(piece if known else Span(clean(piece.text), piece.ink))
        else:
            spans.extend(piece)
    return tuple(spans)


def quiet(text: str) -> Span:
    return Span(text, "quiet")


def strong(text: str) -> Span:
    return Span(text, "strong")


def clean(text: str) -> str:
    """Text that stays on its line and steers no terminal: what cannot be printed is spelled out."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _spelled(each) for each in text)


def _spelled(character: str) -> str:
    return " " if character in "\n\t" else character.encode("unicode_escape").decode()


def width_of(spans: Iterable[Span]) -> int:
    """Columns that spans take."""
    width = 0
    for text, _ in spans:
        width += len(text) if text.isascii() else cell_len(text)
    return width


def text_of(spans: Iterable[Span]) -> str:
    return "".join(text for text, _ in spans)


def cut(spans: Line, width: int, mark: str = "…") -> Line:
    """A line of at most `width` columns; what is cut ends in the mark."""
    if width_of(spans) <= width:
        return spans
    if width <= 0:
        return BLANK
    kept: list[Span] = []
    left = width - cell_len(mark)
    for text, ink in spans:
        size = cell_len(text)
        if size <= left:
            kept.append(Span(text, ink))
            left -= size
            continue
        kept.append(Span(set_cell_size(text, left).rstrip() + mark, ink))
        break
    return tuple(kept)


def pad(spans: Line, width: int, *, right: bool = False, mark: str = "…") -> Line:
    """A line of exactly `width` columns, at its left or right end."""
    space = width - width_of(spans)
    if space < 0:
        spans = cut(spans, width, mark)
        space = width - width_of(spans)
    if space <= 0:
        return spans
    blank = Span(" " * space)
    return (blank, *spans) if right else (*spans, blank)


def spread(left: Line, right: Line, width: int, mark: str = "…") -> Line:
    """Two lines on one, at both ends; the left one gives way."""
    room = width - width_of(right)
    if room <= 1:
        return cut(left, width, mark)
    return (*pad(left, room, mark=mark), *right)


def flowed(pieces: Sequence[Line], width: int, gap: int = 2) -> list[Line]:
    """Pieces side by side, none broken, over lines of at most `width` columns."""
    lines: list[Line] = []
    for piece in pieces:
        if lines and width_of(lines[-1]) + gap + width_of(piece) <= width:
            lines[-1] = (*lines[-1], Span(" " * gap), *piece)
        else:
            lines.append(piece)
    return lines


def beside(
    left: Sequence[Line], right: Sequence[Line], left_width: int, gap: int = 2
) -> list[Line]:
    """Two blocks of lines next to each other."""
    rows = max(len(left), len(right))
    space = Span(" " * gap)
    return [
        (
            *pad(left[row] if row < len(left) else BLANK, left_width),
            space,
            *(right[row] if row < len(right) else BLANK),
        )
        for row in range(rows)
    ]


def dimmed(spans: Line) -> Line:
    """The same line as something old: all of it quiet."""
    return tuple(Span(text, "quiet") for text, _ in spans)


def heading(title: str, width: int, note: Line = BLANK, rule: str = "─") -> Line:
    """A section's title, a rule, and a note at its end."""
    head = (Span(title, "title"), Span(" "))
    tail = (Span(" "), *note) if note else BLANK
    room = width - width_of(head) - width_of(tail)
    if room < 1:
        return cut((*head, *note), width)
    return (*head, Span(rule * room, "rule"), *tail)


def wrap(text: str, width: int, ink: Ink = "plain", indent: int = 0) -> list[Line]:
    """A sentence over lines of at most `width` columns."""
    import textwrap

    lines = textwrap.wrap(clean(text), max(1, width), subsequent_indent=" " * indent)
    return [(Span(each, ink),) for each in lines]
