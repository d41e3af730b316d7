"""Counts in sentences: no plural of one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from k3d.counted import counted, times

ROOT = Path(__file__).resolve().parents[1]
THINGS = (
    "tokens", "requests", "answers", "sparks", "copies", "waves", "lanes", "passes", "turns",
    "questions", "changes", "times",
)  # fmt: skip
"""What there may be one of, at a place where a person reads how many there are."""
FIXED = re.compile(rf"\{{\}} ((?:{'|'.join(THINGS)})\b(?!/)[a-z ]*)")
MANY = ("tokens behind ",)
"""A history."""


def test_one_is_not_many() -> None:
    assert counted(1, "token") == "1 token"
    assert counted(0, "token") == "0 tokens"
    assert counted(85_219, "copy", "copies") == "85,219 copies"
    assert counted(1, "copy", "copies") == "1 copy"
    assert counted(None, "token") == "- tokens"
    assert [times(1), times(12_000)] == ["once", "12,000 times"]


def test_no_sentence_of_the_command_line_has_a_plural_that_is_fixed() -> None:
    found = []
    for path in sorted((ROOT / "k3ctl" / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
                found += [(path.name, each) for each in FIXED.findall("".join(map(str, parts)))]
    found = [each for each in found if each[1] not in MANY]
    assert found == []
