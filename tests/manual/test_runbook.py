"""The runbook: each trouble is made, seen in the runbook's words, shown and mended by its lines."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from man.typeset.source import Block, Paragraph, Verbatim, read_blocks
from tests.manual.shell import DESCRIPTION, REPOSITORY, Ran, Shell

RUNBOOK = REPOSITORY / "docs" / "runbook.md"
pytestmark = [pytest.mark.pod, pytest.mark.timeout(600)]
CHAPTERS = dict(chapter.split("\n", 1) for chapter in RUNBOOK.read_text().split("\n## ")[1:])
PORT = 8923


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A small pod that runs; each trouble leaves it so."""
    shell = Shell(tmp_path_factory.mktemp("runbook"))
    try:
        yield shell
    finally:
        shell.run("k3ctl pod down --deadline 5")


def _changed(shell: Shell, name: str, **keys: str) -> str:
    """The description with other slots, or with keys of the station; the file's name."""
    text = DESCRIPTION.read_text()
    text = text.replace("slots = 768", f"slots = {keys.pop('slots', '768')}")
    for key, value in keys.items():
        text = text.replace('role = "station"', f'role = "station"\n{key} = {value}')
    (shell.work / name).write_text(text)
    return f"./{name}"


def _short_of_slots(shell: Shell) -> Ran:
    _changed(shell, "enough.toml")
    return shell.run(f"k3ctl pod up {_changed(shell, 'short.toml', slots='100')}"
                     " --placement fastest-first")  # fmt: skip


def _kill_a_spark(shell: Shell) -> Ran:
    _signal(shell, signal.SIGKILL)
    return _until(shell, "k3ctl pod status", "has ended")


def _stop_a_spark(shell: Shell) -> Ran:
    _signal(shell, signal.SIGSTOP)
    return _until(shell, "k3ctl health", "is stopped")


def _ask_with_stats(shell: Shell) -> Ran:
    return shell.run('k3ctl chat --stats --max-tokens 4 "What does ls do?"')


def _another_pod(shell: Shell) -> Ran:
    return shell.run("k3ctl pod up embedded-2")


def _take_the_port(shell: Shell) -> Ran:
    shell.run("k3ctl pod down")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", PORT))
        taken.listen()
        return shell.run(f"k3ctl pod up {_changed(shell, 'port.toml', http_port=str(PORT))}")


def _damage_a_bank(shell: Shell) -> Ran:
    shell.run("k3ctl pod down")
    (bank,) = (shell.home / "banks").glob("*.bank")
    with bank.open("r+b") as file:
        file.seek(5_000_000)
        bytes_ = file.read(64)
        file.seek(5_000_000)
        file.write(bytes(each ^ 0xFF for each in bytes_))
    return shell.run("k3ctl pod up embedded-1")


def _swap_a_stale_plan(shell: Shell) -> Ran:
    return shell.run("k3ctl placement swap fastest-first --if-token 0123456789abcdef")


def _another_secret(shell: Shell) -> Ran:
    secret = shell.home / "pod.secret"
    right = secret.read_text()
    secret.write_text("ab" * 32)
    seen = shell.run("k3ctl health")
    secret.write_text(right)
    return seen


def _listen_beyond(shell: Shell) -> Ran:
    shell.run("k3ctl pod down")
    seen = shell.run(
        f"k3ctl pod up {_changed(shell, 'beyond.toml', api_host=chr(34) + '0.0.0.0' + chr(34))}"
    )
    shell.run("k3ctl pod down")
    return seen


TROUBLES: dict[str, Callable[[Shell], Ran]] = {
    "Memory: the pod is short of slots": _short_of_slots,
    "A spark is gone": _kill_a_spark,
    "A node answers and nothing moves": _stop_a_spark,
    "One node is slow": _ask_with_stats,
    "A pod that was thought gone still runs": _another_pod,
    "A port is taken": _take_the_port,
    "Damaged bytes": _damage_a_bank,
    "A placement that is not what was planned": _swap_a_stale_plan,
    "Nodes that do not belong together": _another_secret,
    "The API is open to nobody, or to everybody": _listen_beyond,
}
SHOWS_A_FAULT = ("health", "pod status", "bank ledger", "bank verify")
"""Commands whose exit code says that something is wrong, as it is then."""


def test_the_runbook_has_ten_troubles_and_each_is_made_here() -> None:
    assert list(CHAPTERS) == list(TROUBLES)
    assert len(CHAPTERS) == 10


@pytest.mark.parametrize("title", TROUBLES)
def test_a_trouble_is_seen_shown_and_mended(shell: Shell, title: str) -> None:
    see, show, mend, why = _parts(title)
    shell.pod_up()
    seen = TROUBLES[title](shell)
    words = " ".join((seen.out + seen.err).split())
    (sentence,) = _indented(see)
    assert re.search(_pattern(sentence), words), f"{sentence!r} is not in:\n{seen}"
    for line in _lines(show):
        shown = shell.run(line)
        assert shown.code == 0 or any(verb in line for verb in SHOWS_A_FAULT), shown
        assert shown.out, shown
    for line in _lines(mend):
        mended = shell.run(line)
        assert mended.code == 0, mended
    shell.run("k3ctl pod up embedded-1")
    assert (healthy := _until(shell, "k3ctl health", "", code=0)).code == 0, healthy
    assert why


def _parts(title: str) -> tuple[list[Block], list[Block], list[Block], str]:
    """The blocks behind "You see", "What shows it" and "What mends it", and the reason."""
    parts: dict[str, list[Block]] = {"You see": [], "What shows": [], "What mends": [], "Why:": []}
    current = ""
    for block in read_blocks(CHAPTERS[title].splitlines()):
        if isinstance(block, Paragraph):
            current = next((name for name in parts if block.text.startswith(name)), current)
        parts[current].append(block)
    (why,) = parts["Why:"]
    assert isinstance(why, Paragraph)
    return parts["You see"], parts["What shows"], parts["What mends"], why.text


def _indented(blocks: list[Block]) -> list[str]:
    return [line for block in blocks if isinstance(block, Verbatim) for line in block.lines]


def _lines(blocks: list[Block]) -> list[str]:
    lines = _indented(blocks)
    assert lines
    assert all(line.startswith("$ ") for line in lines)
    return [line[2:] for line in lines]


def _pattern(sentence: str) -> str:
    """The sentence with any numbers, and any directory for that of the example."""
    pattern = re.escape(sentence).replace(re.escape("/home/ada/k3"), r"\S+")
    return re.sub(r"(?<![\w-])\d+(?![\w-])", r"\\d+", pattern)


def _signal(shell: Shell, number: int) -> None:
    os.kill(shell.pid("spark-1"), number)


def _until(shell: Shell, line: str, words: str, code: int | None = None) -> Ran:
    """Run a line until it says the words and ends with the code; its last run."""
    for _ in range(40):
        ran = shell.run(line)
        if words in ran.out and code in (None, ran.code):
            return ran
    return ran
