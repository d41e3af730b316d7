"""k3ctl bank verify|scrub|ls|gc: the banks that are there, read again, listed and cleared away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from k3ctl.cli import bank_work_text as show
from k3ctl.cli.bank_columns import CLEARED, DAMAGES, LISTED, VERIFIED
from k3ctl.cli.bank_make import LOCK_WAIT
from k3ctl.cli.bank_run import finish, judged, note, work
from k3ctl.cli.options import (
    ELSE,
    Invocation,
    columns_options,
    home_options,
    json_option,
    jsonl_option,
    mutation_options,
)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _source_options(command: Decorated) -> Decorated:
    """--pod, --placement and --as-released: what damage is repaired from."""
    for option in (
        click.option("--pod", metavar="NAME|FILE", help=f"Whose checkpoint repairs; {ELSE}."),
        click.option("--placement", metavar="NAME|FILE", help="Whose slices can be built again."),
        click.option("--as-released", is_flag=True, help="As for build."),
        click.option(
            "--rate", metavar="BYTES", help="Most bytes a second, as 200M or 2G; 256K at least."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@_source_options
@click.option("--repair", is_flag=True, help="Put right what can be.")
@click.option("--source", is_flag=True, help="Compare the checkpoint with its bank too.")
@columns_options(VERIFIED, DAMAGES)
@mutation_options(names=("pod", "placement"))
@home_options
@json_option
@jsonl_option
@click.pass_obj
def verify(invocation: Invocation, pod: str | None, files: tuple[str, ...], **flags: Any) -> int:
    """Read every bank again and hash every record again.

    Damage is named by node, file, layer and expert. The exit code is 1 when any is left.
    """
    from k3ctl.client.bank_figures import damage_event

    code, document = work(invocation, "verify", pod, flags, files)
    finish(invocation, "k3ctl.bank-verify/1", document)
    invocation.listed(
        (VERIFIED, document["banks"]),
        (DAMAGES, document["damages"]),
        otherwise=lambda: show.verify_lines(document),
    )
    note(invocation, damage_event(document), {"damages": document["damages"][:20]})
    return judged(invocation, code, show.damage_error(document))


@click.command()
@_source_options
@click.option("--share", metavar="SHARE", help="Of all bytes a day, above 0 to 1; 1/30 if not set.")
@click.option("--no-repair", is_flag=True, help="Only name what is damaged.")
@columns_options(DAMAGES)
@mutation_options(
    dry_run="Say what is due, read nothing.",
    lock_wait="How long to wait for another scrub here, and for a copy of --request-id.",
    names=("pod", "placement"),
)
@home_options
@json_option
@jsonl_option
@click.pass_obj
def scrub(invocation: Invocation, pod: str | None, **flags: Any) -> int:
    """Read and hash a share of the banks again, and repair what is damaged.

    Each run reads what is due since the last one, a day's share at most, from where that one
    stopped, however it ended: call it from a timer. The exit code is 1 when damage is left, 11
    while another scrub runs.
    """
    from k3ctl.client.bank_figures import damage_event

    code, document = work(invocation, "scrub", pod, flags)
    finish(invocation, "k3ctl.bank-scrub/1", document)
    invocation.listed((DAMAGES, document["damages"]), otherwise=lambda: show.scrub_lines(document))
    note(invocation, damage_event(document), {"damages": document["damages"][:20]})
    return judged(invocation, code, show.damage_error(document))


@click.command("ls")
@click.option("--pod", metavar="NAME|FILE", help=f"Names the Station; {ELSE}.")
@columns_options(LISTED)
@home_options
@json_option
@click.pass_obj
def list_banks(invocation: Invocation, pod: str | None) -> None:
    """List the banks of this home and how sure one can be of each.

    A bank is sound once all of it was read and hashed here and it has not changed since.
    """
    _, document = work(invocation, "ls", pod, {})
    invocation.output.document("k3ctl.bank-ls/1", document)
    invocation.listed((LISTED, document["banks"]), otherwise=lambda: show.list_lines(document))


def _lost(invocation: Invocation, parameters: Mapping[str, Any]) -> str | None:
    """What gc would remove, as words; None when it is nothing."""
    _, document = work(invocation, "gc", parameters["pod"], {"dry_run": True})
    return show.removal(document)


@click.command()
@click.option("--pod", metavar="NAME|FILE", help=f"A pod to keep banks for; {ELSE}.")
@columns_options(CLEARED)
@mutation_options(
    dry_run="Say what would be removed, remove nothing.",
    if_token="Only what gc --dry-run showed with this token.",
    asks=_lost,
    lock_wait=LOCK_WAIT,
    names=("pod",),
)
@home_options
@json_option
@click.pass_obj
def gc(invocation: Invocation, pod: str | None, **flags: Any) -> None:
    """Remove banks that no map in force needs.

    What the map in force and the one before it need stays, banks of other maps included that fill
    the sparks of a map that a swap made, slices that are younger than the map in force (they may be
    the next one's), and whatever cannot be told. Nothing is removed before a pod was up in this
    home, or while a change is under way. It asks first; where nobody can be asked it wants --yes.
    """
    from k3ctl.client.bank_figures import clear_event

    _, document = work(invocation, "gc", pod, flags)
    invocation.output.document("k3ctl.bank-gc/1", document)
    invocation.listed((CLEARED, document["files"]), otherwise=lambda: show.clear_lines(document))
    removed = [file["file"] for file in document["files"] if file["removed"]]
    note(invocation, clear_event(document), {"files": removed[:100]})


VERBS = (verify, scrub, list_banks, gc)
