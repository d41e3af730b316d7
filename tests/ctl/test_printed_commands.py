"""Every command line that the sources tell somebody to run runs as it is told."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3ctl.client.next_command import at_home
from tests.ctl.conftest import K3ctl
from tests.manual.command_lines import commands_of, complaint

ROOT = Path(__file__).resolve().parents[2]
WHOLE = ("command", "measure", "replan")
"""Keywords whose value is nothing but a command line."""
TOLD = ("hint", *WHOLE)
STANDS_FOR = "1"
"""What is put where a command line names a node, a pod, a file or a number at run time."""
BEGINS = re.compile(
    r"(?:^|(?<=: )|(?<=; )|(?<=&& )|(?<=or )|(?<=then ))k3(?:ctl|d) (?!and |must ).*"
)
ENDS = re.compile(r"; |, |\(| or | and | again| lists | counts |$")


def _told() -> Iterator[tuple[str, str, str]]:
    """(where, keyword, text) of every string that is given as a hint or as a command."""
    for package in ("k3ctl", "k3d"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                for keyword in node.keywords:
                    for text in _texts(keyword.value) if keyword.arg in TOLD else ():
                        where = f"{path.relative_to(ROOT)}:{node.lineno}"
                        yield where, str(keyword.arg), text


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else STANDS_FOR
            for part in value.values
        )


def _lines(text: str) -> Iterator[str]:
    """The command lines in a sentence."""
    rest = text
    while found := BEGINS.search(rest):
        begun = found.group()
        end = ENDS.search(begun)
        assert end is not None
        yield begun[: end.start()]
        rest = begun[end.end() :] if end.end() else ""


FOUND = sorted(
    {
        (where, line)
        for where, keyword, text in _told()
        for line in ([text] if keyword in WHOLE else _lines(text))
    }
)


def test_the_sources_tell_many_commands() -> None:
    assert len(FOUND) > 80


@pytest.mark.parametrize(("where", "line"), FOUND)
def test_a_command_that_is_told_runs(where: str, line: str) -> None:
    """As it is printed: with every argument and option that it needs."""
    for words in commands_of(line):
        if "--help" not in words:
            assert complaint(words, whole=True) is None, (where, line)


def test_a_sentence_gives_up_its_commands() -> None:
    told = "see: k3ctl logs; then k3ctl pod up again, or k3ctl pod down"
    assert list(_lines(told)) == ["k3ctl logs", "k3ctl pod up", "k3ctl pod down"]
    assert complaint(["k3ctl", "pods", "up"], whole=True)
    assert complaint(["k3ctl", "placement", "plan"], whole=True)


def test_a_command_about_another_home_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("K3_HOME", str(tmp_path))
    line = "k3ctl pod down && k3ctl pod up; cd /opt/k3ctl x"
    assert at_home(line, tmp_path) == line
    other = tmp_path / "two words"
    assert at_home(line, other) == (
        f"k3ctl --home '{other}' pod down && k3ctl --home '{other}' pod up; cd /opt/k3ctl x"
    )


@pytest.mark.parametrize("line", ["see: k3ctl chat --help", "k3ctl help topics", "k3ctl and k3d"])
def test_what_is_about_no_home_names_none(tmp_path: Path, line: str) -> None:
    assert at_home(line, tmp_path / "other") == line


def test_a_command_that_names_its_home_keeps_it(tmp_path: Path) -> None:
    once = at_home("start the pod: k3ctl pod up; see: k3ctl chat --help", tmp_path / "other")
    assert once == f"start the pod: k3ctl --home {tmp_path}/other pod up; see: k3ctl chat --help"
    assert at_home(once, tmp_path / "third") == once


def test_a_home_of_the_configuration_is_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("K3_HOME", raising=False)
    (tmp_path / "k3ctl.toml").write_text(f'home = "{tmp_path}"\n')
    monkeypatch.setenv("K3_CONFIG", str(tmp_path / "k3ctl.toml"))
    assert at_home("k3ctl pod up", tmp_path) == "k3ctl pod up"
    (tmp_path / "k3ctl.toml").write_text("home =")
    assert "--home" in at_home("k3ctl pod up", tmp_path)


@pytest.mark.parametrize("verb", [["status"], ["health"], ["chat", "hi"], ["lanes"]])
def test_hints_are_about_the_home_that_was_told(k3ctl: K3ctl, home: Path, verb: list[str]) -> None:
    other = home.parent / "other home"
    (other / "run").mkdir(parents=True)
    for told in (["--home", str(other), *verb], [*verb, "--home", str(other)]):
        assert f"k3ctl --home '{other}' pod up" in k3ctl(*told).err
    assert ": k3ctl pod up" in k3ctl("--home", str(home), *verb).err


def test_a_hint_in_json_is_about_the_home_that_was_told(k3ctl: K3ctl, home: Path) -> None:
    ran = k3ctl("chat", "hi", "--json", "--home", str(home / "other"))
    assert ran.error["hint"] == f"start the pod: k3ctl --home {home}/other pod up"
