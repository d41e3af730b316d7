"""k3ctl help: commands and topics."""

from __future__ import annotations

import click

from k3ctl.cli.options import Invocation, home_options
from k3ctl.cli.output import EXIT_SENTENCES, HEALTH_SENTENCES
from k3d.errors import ConfigError

ENVIRONMENT = {
    "K3_HOME": "the pod's home, when --home is not given",
    "K3_DAEMON": "how pod up starts k3d, when it is not beside k3ctl",
    "K3_ASCII": "1: no characters beyond ASCII in tables",
    "NO_COLOR": "set: no colour",
    "CLICOLOR_FORCE": "1: colour even into a pipe",
    "XDG_STATE_HOME": "where the home is, outside a checkout: $XDG_STATE_HOME/k3",
}
FILES = {
    "state.db": "what the pod is and was told (SQLite)",
    "telemetry.db": "what it measured (SQLite)",
    "pod.secret": "the secret its nodes share, mode 0600",
    "banks/": "staged bank files",
    "run/NODE.json": "pid and addresses of a running daemon",
    "run/NODE.log": "its log, JSON lines",
    "run/pod.json": "what pod up was told",
    "policies/": "pod descriptions and placement policies of this home",
}


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND...|TOPIC]")
@home_options
@click.pass_context
def show_help(context: click.Context, words: tuple[str, ...]) -> None:
    """Explain a command or a topic: exit-codes, environment, files."""
    invocation: Invocation = context.obj
    topics = {"exit-codes": _exit_codes, "environment": _environment, "files": _files}
    if len(words) == 1 and words[0] in topics:
        invocation.output.lines(topics[words[0]]())
        return
    root = context.find_root()
    command: click.Command = root.command
    current = root
    for word in words:
        found = command.get_command(current, word) if isinstance(command, click.Group) else None
        if found is None:
            raise ConfigError(
                f"there is no command or topic {' '.join(words)!r}",
                hint=f"topics: {', '.join(topics)}; commands: k3ctl --help",
            )
        command = found
        current = click.Context(command, info_name=word, parent=current)
    invocation.output.text(command.get_help(current))


def _exit_codes() -> list[str]:
    lines = ["Exit codes of k3ctl and k3d:", ""]
    for code, sentence in EXIT_SENTENCES.items():
        lines.append(f"  {int(code):>3}  {code.name:11} {sentence}")
    lines += ["", "k3ctl health and k3ctl pod status report a state instead:", ""]
    for code, sentence in HEALTH_SENTENCES.items():
        lines.append(f"  {code:>3}  {sentence}")
    return lines


def _environment() -> list[str]:
    return [f"  {name:15} {sentence}" for name, sentence in ENVIRONMENT.items()]


def _files() -> list[str]:
    return ["In the home:", ""] + [f"  {name:14} {what}" for name, what in FILES.items()]
