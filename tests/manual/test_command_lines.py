"""Every command line in README, manual and docs parses, and those that are shown are run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from man.typeset.pages import ROOT
from tests.manual.command_lines import Line, commands_of, complaint, examples_of, lines_of
from tests.manual.shell import REPOSITORY, Ran, Shell

DOCUMENTS = [
    REPOSITORY / "README.md",
    *sorted((ROOT / "source").glob("*.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
RUN_ELSEWHERE = {
    "runbook.md": "test_runbook.py makes each trouble first",
    "k3d.8.md": "test_two_daemons_by_hand, without a pod that runs",
}
LINES = [line for path in DOCUMENTS for line in lines_of(path)]
RUN_HERE = [
    path
    for path in DOCUMENTS
    if path.name not in RUN_ELSEWHERE and any(line.shown for line in lines_of(path))
]

# What a test does instead of a line, for lines that never end, take minutes, need another
# machine, or stand for whatever the reader has.
TRAFFIC = '; while kill -0 $! 2>/dev/null; do k3ctl chat --max-tokens 32 "What is tar?"; done'
INSTEAD = {
    # Until the pod has recorded something, and is a minute old.
    "k3ctl replay --at 03:12": "until k3ctl replay --at now --once; do :; done",
    "k3ctl replay --at 1m --until now --jsonl": (
        "until k3ctl replay --at 1m --until now --jsonl; do :; done"
    ),
    "make pod": "make -n -C $REPOSITORY pod",
    "git clone <this repository> k3pod && cd k3pod": "test -e $REPOSITORY/Makefile",
    ". .venv/bin/activate": ". $(dirname $(command -v k3ctl))/activate && k3ctl --version",
    "k3ctl check": "k3ctl check --no-pods --greedy --prompts 1 --tokens 2",
    "k3ctl placement measure": "k3ctl placement measure --rounds 1 --tokens 16",
    "k3ctl bench decode": "k3ctl bench decode --prompts 1 --rounds 1 --tokens 8",
    "k3ctl bench lanes --lanes 1,4": "k3ctl bench lanes --lanes 1,2 --tokens 4",
    "k3ctl trace record live.k3trace --tokens 64 --seconds 60": (
        "k3ctl trace record live.k3trace --tokens 64 --seconds 60 &" + TRAFFIC[1:]
    ),
    "k3ctl trace record today.k3trace --tokens 64 --seconds 60": (
        "k3ctl trace record today.k3trace --tokens 64 --seconds 60 &" + TRAFFIC[1:]
    ),
}
CONSOLE = (b"quit", (b"q",))
CONVERSATIONS = {
    "k3ctl chat": (b"> ", (b"What does ls do?\n", b"\x04")),
    "k3ctl": CONSOLE,
    "k3ctl tui": CONSOLE,
    "k3ctl tui --theme mono --read-only": CONSOLE,
}
"""Lines that want a terminal: their prompt, and what is typed behind it."""
NAMED = {
    "k3ctl pod up NAME": "k3ctl pod up embedded-1",
    "k3ctl pod up --placement contiguous": (
        "k3ctl pod down && k3ctl pod up --placement contiguous && k3ctl pod down"
    ),
    "k3ctl trace record live.k3trace": (
        "k3ctl trace record live.k3trace --tokens 32 --seconds 60 &" + TRAFFIC[1:]
    ),
    "k3ctl placement measure": "k3ctl placement measure embedded-1 --rounds 1 --tokens 16",
    "k3ctl placement simulate": "k3ctl placement simulate contiguous --trace live.k3trace",
    "k3ctl placement swap": "k3ctl placement swap contiguous --dry-run",
    "k3d logits": "k3d logits banks/k3-mini --ids ids.json --out logits.npy",
    "k3d generate": "k3d generate banks/k3-mini --ids ids.json --max-tokens 4",
    "pip install 'k3pod[tui,plot]'": "python -m pip --version",
    "pip install 'k3pod[node]'": "python -m pip --version",
}
"""The same for commands that README names in passing, without all that they need."""
ENDLESS = {"k3ctl logs --follow", "k3ctl logs --follow spark-1"}
EXPECTED = {
    "k3ctl bank ledger station-8-sparks": {0, 1},
}
"""Exit codes of lines that say something about what is there."""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("lines"))
    try:
        yield shell
    finally:
        shell.run("k3ctl pod down --deadline 5")


def _name(line: Line) -> str:
    return f"{line.document}: {line.text.splitlines()[0][:60]}"


@pytest.mark.parametrize("line", LINES, ids=_name)
def test_a_line_parses(line: Line) -> None:
    for words in commands_of(line.text):
        assert complaint(words, whole=line.shown) is None


@pytest.mark.pod
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", RUN_HERE, ids=lambda path: path.name)
def test_the_lines_of_a_document_run(shell: Shell, path: Path) -> None:
    _write_examples(shell, path)
    shell.pod_up()
    for text in _sequences(_shown(path)):
        ran = _run(shell, text)
        assert ran.code in ({130} if text in ENDLESS else EXPECTED.get(text, {0})), ran


@pytest.mark.pod
@pytest.mark.timeout(600)
def test_what_readme_names_in_passing_runs(shell: Shell) -> None:
    (shell.work / "ids.json").write_text("[1008, 290]")
    shell.pod_up()
    for text in _named(DOCUMENTS[0]):
        ran = _run(shell, NAMED.get(text, text))
        assert ran.code in ({130} if text in ENDLESS else EXPECTED.get(text, {0})), ran
        if "pod down" in ran.line:
            shell.pod_up()


def _named(path: Path) -> list[str]:
    """Commands in the text of a document; a program's name alone is none."""
    return [line.text for line in lines_of(path) if not line.shown and " " in line.text]


def _run(shell: Shell, text: str) -> Ran:
    if text in ENDLESS:
        return shell.interrupt_after_a_line(text)
    if text in CONVERSATIONS:
        return shell.on_a_terminal(text, *CONVERSATIONS[text])
    return shell.run(INSTEAD.get(text, text).replace("$REPOSITORY", str(REPOSITORY)))


def test_every_page_of_commands_shows_lines() -> None:
    silent = {path.name for path in DOCUMENTS} - {path.name for path in RUN_HERE}
    assert silent == {*RUN_ELSEWHERE, "architecture.md", "json.md"}


def test_nothing_is_replaced_that_no_document_shows() -> None:
    shown = {text for path in DOCUMENTS for text in _sequences(_shown(path))}
    named = set(_named(DOCUMENTS[0]))
    assert {*INSTEAD, *CONVERSATIONS} <= shown
    assert {*ENDLESS, *EXPECTED} <= shown | named
    assert set(NAMED) <= named


@pytest.mark.pod
@pytest.mark.timeout(600)
def test_two_daemons_by_hand(tmp_path: Path) -> None:
    """The lines of k3d(8): daemons in the background, a receiver that waits, a model alone."""
    shown = _shown(ROOT / "source" / "k3d.8.md")
    daemons = [text for text in shown if text.endswith("&")]
    rest = [text for text in shown if text not in daemons]
    shell = Shell(tmp_path / "daemons")
    assert shell.run("k3ctl init").code == 0
    waited = "until k3ctl health --json; do :; done"
    ran = shell.run("\n".join([*daemons, waited, "kill $(jobs -p); wait"]))
    assert '"state": "healthy"' in ran.out, ran
    for text in rest:
        ran = shell.run(BY_HAND.get(text, text))
        assert ran.code in (0, *([3] if text == "k3ctl health" else [])), ran


BY_HAND = {
    "k3d bank receive --pod station-8-sparks --name spark-1": (
        "k3d bank receive --pod station-8-sparks --name spark-1 --listen 127.0.0.1:0 --watch-stdin"
    ),
}
"""The receiver ends with its standard input, instead of with a signal."""


def _shown(path: Path) -> list[str]:
    return [line.text for line in lines_of(path) if line.shown]


def _sequences(shown: list[str]) -> list[str]:
    """The lines, but one that keeps something in the shell joined with the next that uses it."""
    joined: list[str] = []
    for text in shown:
        if joined and joined[-1].startswith("token="):
            joined[-1] += f"\n{text}"
        else:
            joined.append(text)
    return joined


def _write_examples(shell: Shell, path: Path) -> None:
    """The files that a page shows, under the names that its lines give them."""
    names = [
        word[2:]
        for line in lines_of(path)
        if line.shown
        for words in commands_of(line.text)
        for word in words
        if word.startswith("./") and word.endswith(".toml")
    ]
    for name, text in zip(dict.fromkeys(names), examples_of(path), strict=False):
        (shell.work / name).write_text(text)
