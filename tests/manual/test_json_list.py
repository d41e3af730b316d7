"""docs/json.md lists every schema name that the code has, and no other."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch

from tests.manual.shell import REPOSITORY

SCHEMA = re.compile(r"k3(?:ctl|d)?[.-][\w.*-]+/\d+")


def test_every_schema_is_listed_and_none_that_is_not() -> None:
    listed = set(SCHEMA.findall((REPOSITORY / "docs" / "json.md").read_text()))
    plain, patterns = _schemas()
    assert sorted(plain - listed) == []
    made = {name for name in listed for pattern in patterns if fnmatch(name, pattern)}
    assert sorted(listed - plain - made) == []
    assert [p for p in patterns if not any(fnmatch(name, p) for name in listed)] == []


def _schemas() -> tuple[set[str], set[str]]:
    """Schema names in strings of the code, and those with a part filled in, with * for it."""
    plain: set[str] = set()
    patterns: set[str] = set()
    for package in ("k3ctl", "k3d"):
        for path in (REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = _text(node)
                if SCHEMA.fullmatch(text):
                    (patterns if "*" in text else plain).add(text)
    return plain, patterns


def _text(node: ast.AST) -> str:
    """A string of the code, with * for what is filled in; empty for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) or "*" for value in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
