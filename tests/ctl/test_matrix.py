"""Every verb in every surrounding: the bytes it shows, its exit code, and never a traceback.

Verbs are those of click's tree, so a new one is here without being listed. What they show is
compared with golden/VERB.txt; K3_GOLDEN=write writes those anew. Help is in the manual, which
another test compares, and what a bench measures is no two times the same.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from k3ctl.cli.main import run
from k3ctl.cli.output import tame
from k3d.errors import ExitCode, HealthCode
from k3d.store.home import create_secret, make_home
from tests.ctl.command_tree import Words, commands, something_for
from tests.ctl.conftest import K3CTL
from tests.ctl.fake_daemons import FakeDaemon
from tests.ctl.terminal import terminal

GOLDEN = Path(__file__).with_name("golden")
ROOT = Path(__file__).resolve().parents[2]
WRITE = os.environ.get("K3_GOLDEN") == "write"
TREE = dict(commands())
CODES = {int(code) for code in (*ExitCode, *HealthCode)}
SCHEMA = re.compile(r"k3(ctl|d)\.[a-z]+(-[a-z]+)*/[0-9]+")
ARGUMENTS: dict[Words, list[str]] = {
    ("chat",): ["hello"],
    ("pod", "up"): ["embedded-1", "--deadline", "5"],
    ("trace", "record"): ["nothing.k3trace"],
    ("top",): ["--once"],
    ("completion",): ["fish"],
}
"""For verbs that do something else without."""
FULL_SCREEN = {("tui",), ("replay",)}
"""Verbs that take the whole terminal when there is one; their own tests drive them there."""
FOR_PEOPLE = {("tui",)}
"""Verbs without JSON."""


ALONE = {("pod", "down")}
"""Verbs that would end the process of a Station which is this one."""
MEASURING = {words for words in TREE if words[0] in ("check", "health")}
"""Verbs whose figures differ from run to run, and the widths of columns with them."""
ANSWERS = {("chat",)}
"""Verbs whose data is a model's answer, which keeps its letters."""
FOR_SHELLS = {("completion",)}
"""What these print is no text for people."""


@dataclass(frozen=True)
class Shown:
    """What a verb did. On a terminal all of it is on `out`."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.out}--- stderr\n{self.err}--- exit {self.code}\n"


@dataclass(frozen=True)
class Surrounding:
    """Where a verb runs: `terminal` or a pipe, or with stdout `closed`; with a Station or without;
    in a home or in none; with more arguments and variables."""

    name: str
    terminal: bool = False
    closed: bool = False
    station: bool = True
    home: bool = True
    more: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


SURROUNDINGS = (
    Surrounding("tty", terminal=True),
    Surrounding("pipe"),
    Surrounding("json", more=("--json",)),
    Surrounding("closed stdout", closed=True),
    Surrounding("no home", station=False, home=False),
    Surrounding("no daemon", station=False),
    Surrounding("no daemon, json", station=False, more=("--json",)),
    Surrounding("NO_COLOR", terminal=True, variables=(("NO_COLOR", "1"),)),
    Surrounding("LC_ALL=C", variables=(("LC_ALL", "C"),)),
    Surrounding("TERM=dumb", terminal=True, variables=(("TERM", "dumb"),)),
    Surrounding("usage, json", station=False, more=("--no-such-flag", "--json")),
    Surrounding("help", station=False, more=("--help",)),
)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose path has the same length in every run: sentences are wrapped."""
    with tempfile.TemporaryDirectory(prefix="k3-", dir="/tmp") as folder:
        path = Path(folder) / "home"
        make_home(path)
        create_secret(path)
        monkeypatch.setenv("K3_HOME", str(path))
        monkeypatch.setenv("XDG_CONFIG_HOME", f"{folder}/config")
        yield path


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No k3d can be started, and nothing depends on where the tests run."""
    monkeypatch.setenv("K3_DAEMON", "/bin/false")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("TZ", "UTC")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")


def _runs(words: Words, where: Surrounding) -> bool:
    if where.terminal and words in FULL_SCREEN:
        return False
    return "--json" not in where.more or words not in FOR_PEOPLE


def _run(words: Words, where: Surrounding, home: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    arguments = [*words, *ARGUMENTS.get(words, something_for(TREE[words])), *where.more]
    with contextlib.ExitStack() as stack:
        patched = stack.enter_context(monkeypatch.context())
        patched.setenv("K3_HOME", str(home if where.home else home / "none" / "such"))
        for name, value in where.variables:
            patched.setenv(name, value)
        if where.station and words not in ALONE:
            daemon = FakeDaemon(home, "station", "station")
            daemon.start()
            stack.callback(daemon.stop)
        if where.terminal:
            with terminal() as screen:
                code = run(arguments)
            return Shown(code, screen.text, "")
        out, err = _Pipe(), _Pipe()
        patched.setattr(sys, "stdin", _Pipe())
        patched.setattr(sys, "stdout", None if where.closed else out)
        patched.setattr(sys, "stderr", err)
        return Shown(run(arguments), out.getvalue(), err.getvalue())


class _Pipe(io.StringIO):
    encoding = "utf-8"

    @property
    def buffer(self) -> io.BytesIO:
        return io.BytesIO(self.getvalue().encode())


@pytest.mark.parametrize("words", TREE, ids=" ".join)
def test_every_surrounding(words: Words, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = []
    for where in SURROUNDINGS:
        if not _runs(words, where):
            continue
        shown = _run(words, where, home, monkeypatch)
        _judge(words, where, shown)
        settled = _settled(str(shown), home, words in MEASURING)
        if where.name in ("pipe", "help") and words not in FOR_SHELLS:
            of_stdout = settled.partition("--- stderr")[0].splitlines()
            assert max(map(len, of_stdout), default=0) <= 80, settled
        if where.name != "help" and not (where.station and words[0] == "bench"):
            sections.append(f"=== {where.name}\n{settled}")
    _compare("-".join(words), "\n".join(sections))


def _judge(words: Words, where: Surrounding, shown: Shown) -> None:
    """What holds for every verb."""
    said = f"{' '.join(words)} in {where.name}: {shown}"
    assert shown.code in CODES, said
    assert "Traceback" not in shown.out + shown.err, said
    assert "has a fault" not in shown.err, said
    if not where.terminal:
        assert "\x1b" not in shown.out + shown.err, said
    if where.name in ("NO_COLOR", "TERM=dumb"):
        assert not re.search(r"\x1b\[[0-9;]*m", shown.out), said
    if where.name in ("LC_ALL=C", "TERM=dumb") and words not in ANSWERS:
        assert (shown.out + shown.err).isascii(), said
    if where.closed:
        assert shown.code != ExitCode.OK, said
    if where.more[-1:] == ("--json",):
        _judge_json(where, shown, said)
    if where.name == "help":
        assert (shown.code, shown.err) == (ExitCode.OK, ""), said


def _judge_json(where: Surrounding, shown: Shown, said: str) -> None:
    """One document that begins with its schema, and of a failure the error as the last line."""
    if shown.out:
        document = json.loads(shown.out)
        assert next(iter(document)) == "schema", said
        assert SCHEMA.fullmatch(document["schema"]), said
        assert shown.out.count("\n") == 1, said
    reports_a_state = bool(shown.out) and "state" in json.loads(shown.out)
    if shown.code != ExitCode.OK and not reports_a_state:
        error = json.loads(shown.err.splitlines()[-1])
        assert error["type"] == "error", said
        assert (error["code"], error["name"]) == (shown.code, ExitCode(shown.code).name), said
        assert {"message", "hint", "retryable"} <= set(error), said
    if where.name == "usage, json":
        assert shown.code == ExitCode.USAGE, said
        assert shown.out == "", said


OUTCOMES = re.compile(r"(?:^(?:spark-\d+|station) +(?:ready|running|failed|late)\b.*\n)+", re.M)
"""Nodes that come up are told of in the order in which they do."""
FIGURE = re.compile(r"(?<![a-z#\d])(?<!exit )(\d[\d,.]*\d|\d)")
SETTLED: tuple[tuple[str, str], ...] = (
    (r"\b127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\(pid \d+ of [^)]*\)", "(pid PID of USER@HOST)"),
    (r"\bpid \d+", "pid PID"),
    (r'"(pid|http_port|port|size_bytes)": \d+', r'"\1": N'),
    (r'"(began_ms|claimed_ms|done_ms|at_ms|ts_ms|first_ms|last_ms|since_ms|until_ms)": \d+',
     r'"\1": TIME'),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z)?", "TIME"),
    (r'"[0-9a-f]{12}"', '"ID"'),
    (r"\breceipt [0-9a-f]{12}\b", "receipt ID"),
)  # fmt: skip


def _settled(text: str, home: Path, measured: bool) -> str:
    """The text without what differs from run to run; of measurements, without the figures."""
    text = re.sub(r"\r[^\r\n]*\x1b\[K", "", text)  # a bar
    text = re.sub(r"^\d+ %, .*\n", "", text, flags=re.MULTILINE)  # a line of progress in a log
    text = text.replace(str(home.parent), "TMP")
    text = text.replace(str(ROOT), "CHECKOUT")
    text = OUTCOMES.sub(lambda told: "".join(sorted(told.group().splitlines(keepends=True))), text)
    for pattern, word in SETTLED:
        text = re.sub(pattern, word, text)
    if measured:
        text = re.sub(r" {2,}", "  ", re.sub(FIGURE, "#", text))
    return tame(text).replace("\x1b", "\\x1b")


def _compare(name: str, found: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(found)
    assert path.exists(), f"no golden bytes of {name}; K3_GOLDEN=write writes them"
    assert found == path.read_text(), f"{name} shows something else; K3_GOLDEN=write if meant"


@pytest.mark.parametrize(
    "words", [("status",), ("config", "path"), ("placement", "status")], ids=" ".join
)
@pytest.mark.parametrize("name", ["tty", "pipe", "closed stdout", "LC_ALL=C", "no daemon, json"])
def test_a_process_shows_what_this_one_does(
    words: Words, name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = replace(next(each for each in SURROUNDINGS if each.name == name), station=False)
    here = _run(words, where, home, monkeypatch)
    arguments = [*K3CTL, *words, *where.more]
    if where.closed:
        arguments = ["sh", "-c", 'exec "$@" >&-', "sh", *arguments]
    env = {**os.environ, **dict(where.variables), "PYTHONPATH": str(ROOT)}
    settings: dict[str, Any] = {"env": env, "stdin": subprocess.DEVNULL, "timeout": 60}
    if where.terminal:
        with terminal() as screen:
            done = subprocess.run(arguments, stdout=sys.stdout, stderr=sys.stderr, **settings)
        shown = Shown(done.returncode, screen.text, "")
    else:
        done = subprocess.run(arguments, capture_output=True, text=True, **settings)
        shown = Shown(done.returncode, done.stdout, done.stderr)
    assert str(shown) == str(here)


def test_there_are_no_golden_bytes_of_verbs_that_are_gone() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {"-".join(words) for words in TREE}
