"""Completion, by the shells themselves where they are installed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from k3ctl.cli.completion import FILES, OFFERS, SHELLS, VARIABLE
from tests.ctl.command_tree import commands
from tests.ctl.conftest import K3CTL, K3ctl

SHIPPED = {
    "bash": "k3ctl/completions/k3ctl.bash",
    "zsh": "k3ctl/completions/_k3ctl",
    "fish": "k3ctl/completions/k3ctl.fish",
}
ROOT = Path(__file__).resolve().parents[2]
OFFER_NOTHING = {"prompt", "lane"}
"""Arguments that are anybody's text, or that complete by their own type."""


@pytest.fixture
def program(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """k3ctl on the PATH, as the shells run it."""
    path = tmp_path / "bin" / "k3ctl"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {shlex.join(K3CTL)} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    nodes = [{"name": name, "role": "spark", "local": True} for name in ("spark-1", "spark-2")]
    (home / "run" / "pod.json").write_text(json.dumps({"nodes": nodes}))
    return path


def _in_bash(script: Path, line: str) -> list[str]:
    words = line.split(" ")
    program = (
        f"source {shlex.quote(str(script))}\n"
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
        '_k3ctl_completion k3ctl 2>&1\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return [word for word in done.stdout.splitlines() if "compopt: not currently" not in word]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("k3ctl pla", ["placement"]),
        ("k3ctl pod ", ["down", "status", "up"]),
        ("k3ctl pod up embedded-", ["embedded-1", "embedded-2", "embedded-8"]),
        ("k3ctl pod up --placement contig", ["contiguous"]),
        ("k3ctl pod up --transport t", ["tcp"]),
        ("k3ctl health ", ["spark-1", "spark-2"]),
        ("k3ctl logs spark-1 ", ["spark-1", "spark-2"]),
        ("k3ctl logs --node spark-2", ["spark-2"]),
        ("k3ctl placement swap optimised", ["optimised", "optimised-replicated"]),
        ("k3ctl help envi", ["environment"]),
        ("k3ctl chat --max-t", ["--max-tokens"]),
        ("k3ctl completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_bash_offers(program: Path, line: str, offered: list[str]) -> None:
    found = _in_bash(ROOT / SHIPPED["bash"], line)
    assert [word for word in found if word] == offered


def test_a_wrong_word_is_not_complained_about(program: Path) -> None:
    assert not [w for w in _in_bash(ROOT / SHIPPED["bash"], "k3ctl nothing ") if "k3ctl" in w]


def test_the_home_on_the_line_is_asked(program: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "run").mkdir(parents=True)
    (other / "run" / "spark-9.log").write_text("")
    assert _in_bash(ROOT / SHIPPED["bash"], f"k3ctl --home {other} health ") == ["spark-9"]


def test_a_broken_home_and_configuration_offer_nothing_and_say_nothing(
    program: Path, home: Path
) -> None:
    (home / "run" / "pod.json").write_text("{")
    (home / "k3ctl.toml").write_text("broken")
    assert _in_bash(ROOT / SHIPPED["bash"], "k3ctl health spark") in ([], [""])
    assert _in_bash(ROOT / SHIPPED["bash"], "k3ctl pod up embedded-8") == ["embedded-8"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("k3ctl pod up embedded-", ["embedded-1", "embedded-2", "embedded-8"]),
        ("k3ctl health ", ["spark-1", "spark-2"]),
        ("k3ctl pla", ["placement"]),
    ],
)
def test_fish_offers(program: Path, line: str, offered: list[str]) -> None:
    script = ROOT / SHIPPED["fish"]
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert [found.split("\t")[0] for found in done.stdout.splitlines()] == offered


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [("k3ctl health ", "spark-1 spark-2"), ("k3ctl pla", "placement")],
)
def test_zsh_offers(program: Path, line: str, offered: str) -> None:
    """The function of the script, with zsh's own words for "add these" in front of it."""
    words = line.split(" ")
    stand_ins = (
        "compdef() { : }; _path_files() { : }\n"
        "compadd() { print -r -- ${(P)@[-1]} }\n"
        "_describe() { print -r -- ${${(P)3}%%:*} }\n"
    )
    program_text = (
        f"{stand_ins}source {shlex.quote(str(ROOT / SHIPPED['zsh']))}\n"
        f"words=({shlex.join(words)}); CURRENT={len(words)}; _k3ctl_completion"
    )
    done = subprocess.run(
        ["zsh", "-f", "-c", program_text], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == offered.split(), done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shipped_scripts_are_what_the_verb_prints(k3ctl: K3ctl, shell: str) -> None:
    printed = k3ctl("completion", shell)
    assert printed.code == 0
    assert VARIABLE in printed.out
    assert (ROOT / SHIPPED[shell]).read_text() == printed.out
    assert k3ctl("completion", shell, "--json").document["script"] == printed.out


def test_every_argument_offers_something_or_is_known_not_to() -> None:
    known = {*OFFERS, *FILES, *OFFER_NOTHING}
    unknown = [
        f"{' '.join(words)}: {parameter.name}"
        for words, command in commands()
        for parameter in command.params
        if isinstance(parameter, click.Argument)
        and not isinstance(parameter.type, click.Choice)
        and parameter.name not in known
    ]
    assert unknown == []
