"""Completion for shells: the scripts, and the names of a pod that they offer.

Names are read from files of the home and the policies; no daemon is asked, and nothing that is
wrong with a file is told while somebody types.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from k3ctl.cli.options import Invocation, home_options, json_option

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_K3CTL_COMPLETE"
TIERS = ("hbm", "rtx", "grace", "spark")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@home_options
@json_option
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, flags and the names of the pod.

    \b
    bash  eval "$(k3ctl completion bash)"         in ~/.bashrc
    zsh   eval "$(k3ctl completion zsh)"          in ~/.zshrc, after compinit
    fish  k3ctl completion fish | source          in ~/.config/fish/config.fish

    The wheel installs the same scripts where these shells look for them.
    """
    invocation: Invocation = context.obj
    text = script(context.find_root().command, shell)
    invocation.output.document("k3ctl.completion/1", {"shell": shell, "script": text})
    invocation.output.piece(text)


def script(root: click.Command, shell: str) -> str:
    """click's own script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    # Not kind.source(): for bash that starts one to ask for its version.
    return ShellComplete.source(kind(root, {}, "k3ctl", VARIABLE))


def teach(command: click.Command) -> None:
    """Let the parameters of a command, and of those below it, offer names by what they are."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            teach(below)
    for parameter in command.params:
        names = OFFERS.get(str(parameter.name))
        if names is not None:
            parameter.shell_complete = _offer(names)
        elif parameter.name in FILES:
            parameter.shell_complete = _files


Names = Callable[[Path], Iterable[str]]


def nodes(home: Path) -> list[str]:
    """Nodes of the pod that was brought up last; without one, those that left a log."""
    run = home / "run"
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        return [str(node["name"]) for node in json.loads((run / "pod.json").read_bytes())["nodes"]]
    return sorted(path.stem for path in run.glob("*.log"))


def pods(home: Path) -> list[str]:
    return _policies("pods", home)


def placements(home: Path) -> list[str]:
    return _policies("placement", home)


def tiers(_: Path) -> tuple[str, ...]:
    return TIERS


def topics(_: Path) -> list[str]:
    from k3ctl.cli.help import TOPICS
    from k3ctl.cli.main import VERBS

    return [*TOPICS, *VERBS]


OFFERS: dict[str, Names] = {
    "node": nodes,
    "nodes": nodes,
    "names": nodes,
    "pod": pods,
    "description": pods,
    "policy": placements,
    "placement": placements,
    "maps": placements,
    "tier": tiers,
    "words": topics,
}
"""What a parameter of a name takes. Pods, policies and maps may be files as well."""
FILES = frozenset(
    {"file", "files", "out", "trace", "source", "first", "second", "sums", "config", "index",
     "model"}
)  # fmt: skip
OR_FILES = (pods, placements)


class Completer(Protocol):
    """As click calls it."""

    def __call__(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]: ...


def _offer(names: Names) -> Completer:
    def complete(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if names in OR_FILES and ("/" in incomplete or incomplete.startswith("~")):
            return _files(ctx, incomplete)
        found: Iterable[str] = ()
        with contextlib.suppress(Exception):  # whatever it is, it is no time to tell
            found = names(ctx.obj.home)
        offered = [CompletionItem(name) for name in found if name.startswith(incomplete)]
        return offered or (_files(ctx, incomplete) if names in OR_FILES else [])

    return complete


def _files(ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """The shell's own completion of paths."""
    return [CompletionItem(incomplete, type="file")]


def _policies(kind: str, home: Path) -> list[str]:
    from k3d.placement.policy_files import policy_directories

    found = set()
    for folder in policy_directories(kind, home):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found |= {entry.name[:-5] for entry in entries if entry.name.endswith(".toml")}
    return sorted(found)
