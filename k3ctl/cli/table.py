"""Tables that fit a terminal of 80 columns, and the same rows for scripts (-H, -p, -o)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from k3d.counted import counted as counted
from k3d.counted import times as times
from k3d.duration import duration_us as duration_us
from k3d.errors import ConfigError

WIDTH = 80
GAP = "  "
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Column:
    """One column: its name for -o, its exact value of a row, and how a person reads that.

    `of` is a key of the row, or takes the row. None is what is not available.
    """

    name: str
    of: str | Callable[[Any], Any]
    shown: Callable[[Any], str] | None = None
    right: bool = False
    header: str | None = None

    @property
    def heading(self) -> str:
        return self.name.upper().replace("_", " ") if self.header is None else self.header

    def value(self, row: Any) -> Any:
        return row.get(self.of) if isinstance(self.of, str) else self.of(row)

    def cell(self, row: Any, *, exact: bool = False, words: bool = False) -> str:
        """`exact` numbers, and `words` as they are: a state without its glyph."""
        value = self.value(row)
        if exact or self.shown is None or (words and isinstance(value, str)):
            return plain(value)
        return self.shown(value)


@dataclass(frozen=True)
class Columns:
    """The columns of one table; `rows` is what its rows are, as a word for a person."""

    rows: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def some(self, *names: str) -> list[Column]:
        """The columns of these names, in this order."""
        by_name = {column.name: column for column in self.columns}
        return [by_name[name] for name in names]

    def lines(self, rows: Iterable[Any], shown: Sequence[str] = (), **form: bool) -> list[str]:
        """Lines of the table, of some columns or of all; see `listing` for the form."""
        return listing(self.some(*(shown or self.names)), rows, **form)

    def fitted(self, rows: Sequence[Any], width: int, dispensable: Sequence[str]) -> list[str]:
        """Lines for a person on a screen of this width. Where it is too narrow the dispensable
        columns go, the first named first, until the rest fits or none is left to go."""
        shown = list(self.names)
        for name in dispensable:
            lines = self.lines(rows, shown)
            if max(map(visible, lines)) <= width:
                return lines
            shown = [each for each in shown if each != name]
        return self.lines(rows, shown)


@dataclass(frozen=True)
class Chosen:
    """What -H, -p and -o ask of a table."""

    header: bool = True
    exact: bool = False
    names: tuple[str, ...] = ()

    def table_of(self, tables: Sequence[Columns]) -> Columns:
        """The table that has the columns named; the first when none is. Raises ConfigError."""
        for found in tables:
            if set(self.names) <= set(found.names):
                return found
        known = {name for found in tables for name in found.names}
        unknown = [name for name in self.names if name not in known]
        what = f"there is no column {unknown[0]!r}" if unknown else "-o mixes columns of two tables"
        listed = "; ".join(f"of {found.rows}: {', '.join(found.names)}" for found in tables)
        raise ConfigError(f"{what}; columns {listed}", hint="as in: -o node,state")


def listing(
    columns: Sequence[Column], rows: Iterable[Any], *, header: bool = True, exact: bool = False
) -> list[str]:
    """Lines of a table. Without a header its cells are separated by one tab and nothing is
    aligned; exact cells are whole numbers of base units."""
    cells = [
        [column.cell(row, exact=exact, words=not header) for column in columns] for row in rows
    ]
    if not header:
        return ["\t".join(map(untabbed, row)) for row in cells]
    right = "".join("r" if column.right else "l" for column in columns)
    return table([column.heading for column in columns], cells, right)


def untabbed(cell: str) -> str:
    """A cell in which no character ends it or its line."""
    return re.sub(r"[\t\n\r]", " ", _ESCAPES.sub("", cell))


def plain(value: Any) -> str:
    """A value as a script reads it; a dash for what is not available."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.9g}"
    return ",".join(map(plain, value)) if isinstance(value, list | tuple) else str(value)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> list[str]:
    """Lines of a table. `right` has an r for each column that is aligned to the right."""
    widths = [
        max(visible(row[column]) for row in (headers, *rows)) for column in range(len(headers))
    ]
    lines = []
    for row in (headers, *rows):
        cells = [
            _padded(cell, width, right[column : column + 1] == "r")
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(GAP.join(cells).rstrip())
    return lines


def wrapped(text: str, indent: str = "  ") -> list[str]:
    """A sentence in lines of at most 80 columns, those after the first indented."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent)


def cut(text: str, width: int = WIDTH) -> str:
    """A text without colour, cut to a width with … as its mark."""
    return text if len(text) <= width else text[: max(0, width - 1)].rstrip() + "…"


def visible(text: str) -> int:
    """Columns a text takes, colour codes aside."""
    return len(_ESCAPES.sub("", text))


def count(number: int | None) -> str:
    """85219 as 85,219; None as a dash."""
    return "-" if number is None else f"{number:,}"


def size(size_bytes: float | None) -> str:
    """Bytes in the unit that reads best, powers of 1024; None as a dash."""
    if size_bytes is None:
        return "-"
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def seconds(time_s: float | None) -> str:
    """Seconds, finer when short; None as a dash."""
    if time_s is None:
        return "-"
    return f"{time_s:.1f} s" if time_s < 120 else f"{time_s / 60:.0f} min"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _padded(cell: str, width: int, to_the_right: bool) -> str:
    space = " " * (width - visible(cell))
    return space + cell if to_the_right else cell + space
