"""k3ctl help: commands and topics."""

from __future__ import annotations

import click

from k3ctl.cli.lazy import meant
from k3ctl.cli.options import Invocation, home_options, json_option
from k3ctl.cli.output import EXIT_SENTENCES, HEALTH_SENTENCES
from k3ctl.cli.table import wrapped
from k3d.errors import ConfigError

ENVIRONMENT = {
    "K3_HOME": "the pod's home, when --home is not given",
    "K3_DAEMON": "how pod up starts k3d, when it is not beside k3ctl",
    "K3_ASCII": "1: no characters beyond ASCII in tables",
    "NO_COLOR": "set: no colour",
    "CLICOLOR_FORCE": "1: colour even into a pipe",
    "K3_CONFIG": "one file that stands for every k3ctl.toml; empty for none",
    "K3_DEBUG": "1: a fault of k3ctl with its whole traceback",
    "XDG_STATE_HOME": "where the home is, outside a checkout: $XDG_STATE_HOME/k3",
    "XDG_CONFIG_HOME": "where a user's k3ctl.toml is: $XDG_CONFIG_HOME/k3",
}
STATES = (
    "These say a state instead: k3ctl health that of the worst node; k3ctl status and k3ctl pod "
    "status that of the pod, which may work without a node that is down."
)
FORMATTING = """
Data goes to stdout and words to stderr; -q leaves out the words, errors aside.

On a terminal a state is a glyph, a word and a colour. Into a pipe there is no
colour and no progress bar. NO_COLOR, CLICOLOR_FORCE, K3_ASCII, LC_ALL=C and
TERM=dumb are heeded. For good, colour and ascii are set in the file k3ctl.toml;
k3ctl.toml(5) tells of them, and k3ctl config path says where the file is.

--json       one document. Its first key is "schema", as k3ctl.health/1: keys
             are added under the same number, never renamed or removed. Units
             are in the names (size_bytes, p99_us); null is not available.
             Of a failure the last line of stderr is an object with type,
             code, name, message, hint and retryable.
--jsonl      one object a line as things happen, each with "type"; the last
             is of type done, or error.
-H           a table without header, one tab between columns
-p           exact numbers in base units: bytes, microseconds, shares of 1
-o COL,COL   only these columns, in this order; the verb's --help lists them. A
             dash is what is not available.

For scripts: k3ctl status -Hp -o node,state,memory
             k3ctl health --json | jq -r '.nodes[].state'

What changes something takes --request-id ID: of all copies with one id one has
the effect, the others say that it was done and end with 0. --lock-wait SECONDS
bounds the waiting for other commands. What destroys something asks on a
terminal and wants --yes elsewhere.
"""
FILES = {
    "state.db": "what the pod is and was told (SQLite)",
    "telemetry.db": "what it measured (SQLite)",
    "pod.secret": "the secret its nodes share, mode 0600",
    "banks/": "staged bank files",
    "run/NODE.json": "pid and addresses of a running daemon",
    "run/NODE.log": "its log, JSON lines",
    "run/pod.json": "what pod up was told",
    "run/requests/": "what was done for which --request-id",
    "k3ctl.toml": "defaults of k3ctl; see: k3ctl config",
    "policies/": "pod descriptions and placement policies of this home",
}


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND...|TOPIC]")
@home_options
@json_option
@click.pass_context
def show_help(context: click.Context, words: tuple[str, ...]) -> None:
    """Explain a command or a topic: topics, exit-codes, environment, formatting, files."""
    invocation: Invocation = context.obj
    if len(words) == 1 and words[0] in TOPICS:
        _show(invocation, words, "\n".join(TOPICS[words[0]]()))
        return
    root = context.find_root()
    command: click.Command = root.command
    current = root
    for word in words:
        found = command.get_command(current, word) if isinstance(command, click.Group) else None
        if found is None:
            among = command.list_commands(current) if isinstance(command, click.Group) else []
            near = meant(word, [*among, *TOPICS] if current is root else among)
            raise ConfigError(
                f"there is no command or topic {' '.join(words)!r}" + (f"; {near}" if near else ""),
                hint=f"topics: {', '.join(TOPICS)}; commands: k3ctl --help",
            )
        command = found
        current = click.Context(command, info_name=word, parent=current)
    _show(invocation, words, command.get_help(current))


def _show(invocation: Invocation, words: tuple[str, ...], text: str) -> None:
    invocation.output.document("k3ctl.help/1", {"about": list(words), "text": text})
    invocation.output.lines(text.splitlines())


def _exit_codes() -> list[str]:
    lines = ["Exit codes of k3ctl and k3d:", ""]
    for code, sentence in EXIT_SENTENCES.items():
        lines += wrapped(f"  {int(code):>3}  {code.name:12} {sentence}", " " * 20)
    lines += ["", *wrapped(STATES, ""), ""]
    for code, sentence in HEALTH_SENTENCES.items():
        lines.append(f"  {code:>3}  {sentence}")
    return lines


def _environment() -> list[str]:
    lines = []
    for name, sentence in ENVIRONMENT.items():
        lines += wrapped(f"  {name:16} {sentence}", " " * 19)
    return lines


def _files() -> list[str]:
    return ["In the home:", ""] + [f"  {name:14} {what}" for name, what in FILES.items()]


def _topics() -> list[str]:
    return [f"  {topic:14} {what}" for topic, what in ABOUT.items()]


ABOUT = {
    "topics": "this list",
    "exit-codes": "what the exit codes of k3ctl and k3d mean",
    "environment": "the variables that are heeded",
    "formatting": "streams, JSON, columns, colour, and what all verbs take",
    "files": "what is in the home",
}
TOPICS = {
    "topics": _topics,
    "exit-codes": _exit_codes,
    "environment": _environment,
    "formatting": FORMATTING.strip().splitlines,
    "files": _files,
}
