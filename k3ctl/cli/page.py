"""A page of words, tables and charts, before it is text, Markdown or HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from k3ctl.charts.panels import Panel
from k3ctl.cli.output import tame

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BREAKS = re.compile(r"[\s\x1c-\x1f\x85\u2028\u2029]+")


def one_line(text: str) -> str:
    """Text from data on one line, without colours; what would steer a terminal is spelled out."""
    return tame(_COLOURS.sub("", _BREAKS.sub(" ", text)))


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Grid:
    """A table. `right` has an r for each column that is aligned to the right; the last column may
    be long."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: str = ""


@dataclass(frozen=True)
class Drawing:
    """Charts over one span of Unix seconds, and what they are of."""

    caption: str
    panels: tuple[Panel, ...]
    since_s: float
    until_s: float
    rules: tuple[float, ...] = ()


@dataclass(frozen=True)
class Commands:
    """Lines to type, each with its reason."""

    lines: tuple[tuple[str, str], ...]


Block = Words | Grid | Drawing | Commands


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A title, a line below it, sections, and where the figures come from."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    footnote: str
