"""A conversation on a terminal."""

from __future__ import annotations

import contextlib
import re
import readline
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from k3ctl.cli.answer_text import AnswerText, stats_line
from k3ctl.cli.output import Output, paint
from k3ctl.cli.screen_size import screen_size
from k3ctl.client.conversation import Answer, ask
from k3ctl.client.daemon import Daemon
from k3d.errors import K3Error
from k3d.store.paths import run_directory

LONGEST_HISTORY = 1_000
GREETING = "ctrl-d ends, ctrl-c stops an answer, /new starts afresh, /help lists commands"
COMMANDS = {
    "/new": "begin a new conversation",
    "/quit": "end, as ctrl-d does",
    "/help": "this list",
}
_COMMAND = re.compile(r"/[\w-]*")


def converse(
    home: Path,
    station: Daemon,
    opening: list[dict[str, str]],
    settings: dict[str, Any],
    output: Output,
    *,
    stats: bool = False,
) -> None:
    """Ask, answer and remember until the end of input or /quit. An error ends an answer, not the
    session. A single word after a slash is a command, never a question."""
    for line in textwrap.wrap(GREETING, screen_size()[0]):
        output.note(line)
    messages = list(opening)
    with _history(run_directory(home) / "chat_history"):
        while True:
            try:
                question = input("> ").strip()
            except EOFError:
                output.text()
                return
            except KeyboardInterrupt:
                output.text()
                continue
            if question == "/quit":
                return
            if question == "/new":
                messages = list(opening)
                output.text("a new conversation begins")
            elif _COMMAND.fullmatch(question):
                output.lines(_told(question))
            elif question:
                messages = _turn(station, messages, question, settings, output, stats)


def _told(command: str) -> list[str]:
    """The commands, or that this is none."""
    if command == "/help":
        return [f"  {name:6} {what}" for name, what in COMMANDS.items()]
    return [f"there is no command {command}; /help lists them"]


def _turn(
    station: Daemon,
    messages: list[dict[str, str]],
    question: str,
    settings: dict[str, Any],
    output: Output,
    stats: bool,
) -> list[dict[str, str]]:
    """One question and its answer; the messages that the next one follows."""
    asked = [*messages, {"role": "user", "content": question}]
    answer = Answer()
    shown = AnswerText(output)
    try:
        for event in ask(station, {"messages": asked, **settings}, answer):
            shown.show(event)
    except KeyboardInterrupt:
        output.text(paint(" (stopped)", "dim"))
    except K3Error as error:
        output.text()
        output.error(error)
        return messages
    else:
        output.text()
        if stats:
            output.note(stats_line(answer))
    return [*asked, {"role": "assistant", "content": answer.text}]


@contextlib.contextmanager
def _history(path: Path) -> Iterator[None]:
    """Line editing with the questions of earlier sessions."""
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(LONGEST_HISTORY)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(path)
            path.chmod(0o600)
