"""Tables that fit a terminal of 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

WIDTH = 80
GAP = "  "
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


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


def duration_us(time_us: float | None) -> str:
    """Microseconds in the unit that reads best; None as a dash."""
    if time_us is None:
        return "-"
    if time_us < 1_000:
        return f"{time_us:.0f} us"
    return f"{time_us / 1000:.2f} ms" if time_us < 1_000_000 else f"{time_us / 1e6:.1f} s"


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
