"""What a manual page must be, checked without mandoc."""

from __future__ import annotations

import re
from pathlib import Path

from man.typeset.pages import ORDER

WIDEST = {".Bd -literal": 75, ".Bd -literal -offset indent": 69}
"""Columns of what is shown as it is, by its display: a page has 80."""
_HEAD = [r'\.\\" Made by', r"\.Dd \w+ \d+, \d{4}", r"\.Dt \S+ \d", r"\.Os k3pod \S+", r"\.Sh NAME",
         r"\.Nm \S+", r"\.Nd .+"]  # fmt: skip


def complaints(path: Path, pages: set[str]) -> list[str]:
    """What is wrong with a page; `pages` are the names, as k3d(8), of those there are."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = [
        f"line {number}: is not {pattern}"
        for number, (line, pattern) in enumerate(zip(lines, _HEAD, strict=False), start=1)
        if not re.match(pattern, line)
    ]
    found += _line_complaints(lines)
    found += _section_complaints(lines)
    own = f"{path.stem}({path.suffix[1:]})"
    named = re.findall(r"Xr (k3\S*) (\d)", text)
    found += [f"{name}({n}) is no page" for name, n in named if f"{name}({n})" not in pages]
    found += [f"it refers to itself: {own}" for name, n in named if f"{name}({n})" == own]
    if f".Dt {path.stem.upper()} {path.suffix[1:]}" not in lines:
        found.append(".Dt is of another page")
    return found


def _line_complaints(lines: list[str]) -> list[str]:
    found: list[str] = []
    open_: list[str] = []
    for number, line in enumerate(lines, start=1):
        where = f"line {number}: "
        verbatim = bool(open_) and open_[-1].startswith(".Bd")
        if line != line.rstrip() or not line.isascii():
            found.append(where + "ends in a space or is not ASCII")
        if not line and not verbatim:
            found.append(where + "is empty")
        shown = re.sub(r"\\&|\\\(..|\\\[.*?\]", lambda m: "" if m[0] == "\\&" else "x", line)
        width = len(shown.replace("\\-", "-").replace("\\e", "x"))
        if verbatim and line != ".Ed" and width > WIDEST[open_[-1]]:
            found.append(where + f"is wider than {WIDEST[open_[-1]]} columns")
        if line.startswith((".Bl ", ".Bd ")):
            open_.append(line)
        elif line in (".El", ".Ed"):
            if not open_ or open_.pop()[2] != line[2]:
                found.append(where + f"{line} closes nothing")
        elif line.startswith(".It") and (not open_ or not open_[-1].startswith(".Bl")):
            found.append(where + ".It is in no list")
        elif line.startswith((".Sh", ".Ss")) and open_:
            found.append(where + f"{open_.pop()} is not closed")
    return found + ["a list or a display is not closed at the end"] * bool(open_)


def _section_complaints(lines: list[str]) -> list[str]:
    starts = [number for number, line in enumerate(lines) if line.startswith(".Sh ")]
    names = [lines[number][4:] for number in starts]
    found = [f"section {name}: there are two" for name in set(names) if names.count(name) > 1]
    known = [name for name in names if name in ORDER]
    if known != sorted(known, key=ORDER.index):
        found.append(f"sections are out of order: {', '.join(known)}")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if end - start < 2:
            found.append(f"section {lines[start][4:]} is empty")
    if "SEE ALSO" in names:
        found += _see_also_complaints(lines[starts[names.index("SEE ALSO")] + 1 :])
    return found


def _see_also_complaints(lines: list[str]) -> list[str]:
    """References are sorted by section, then by name."""
    references = [line.split()[1:3] for line in lines if line.startswith(".Xr ")]
    wanted = sorted(references, key=lambda each: (each[1], each[0]))
    return ["SEE ALSO is not sorted"] * (references != wanted)
