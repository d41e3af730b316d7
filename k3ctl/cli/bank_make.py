"""k3ctl bank plan|build|stage: the banks that a pod needs, made and sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from k3ctl.cli import bank_work_text as show
from k3ctl.cli.bank_columns import BUILT, PLANNED, STAGED
from k3ctl.cli.bank_run import finish, judged, keep_figures, note, work
from k3ctl.cli.options import (
    Invocation,
    columns_options,
    home_options,
    json_option,
    jsonl_option,
    mutation_options,
)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
IF_TOKEN = "Only if the banks are as they were when plan showed this token."
LOCK_WAIT = "How long to wait for another build, stage or gc here, and for a copy of --request-id."


def _pod_options(command: Decorated) -> Decorated:
    """[POD], --placement and --as-released."""
    for option in (
        click.argument("pod", required=False, metavar="[POD]"),
        click.option("--placement", metavar="NAME|FILE", help="Placement policy, or a map."),
        click.option(
            "--as-released",
            is_flag=True,
            help="Leave MXFP4 experts as they are, not recast to NVFP4.",
        ),
    ):
        command = option(command)
    return command


def _kind_options(command: Decorated) -> Decorated:
    """--no-whole and --no-slices."""
    for option in (
        click.option("--no-whole", is_flag=True, help="Not the Station's bank."),
        click.option("--no-slices", is_flag=True, help="Not the sparks' slices."),
    ):
        command = option(command)
    return command


@click.command()
@_pod_options
@_kind_options
@columns_options(PLANNED)
@home_options
@json_option
@click.pass_obj
def plan(invocation: Invocation, pod: str | None, **flags: Any) -> None:
    """Show which banks a pod needs, what is there and what building would write.

    POD is a description, by name or file, else the pod that runs here, or embedded; its checkpoint
    must be on this machine. The token names what was shown: build and stage take it with --if-token
    and refuse when it is no longer so.
    """
    _, document = work(invocation, "plan", pod, flags)
    _show_plan(invocation, document)


def _show_plan(invocation: Invocation, document: dict[str, Any]) -> None:
    invocation.output.document("k3ctl.bank-plan/1", document)
    invocation.listed((PLANNED, document["banks"]), otherwise=lambda: show.plan_lines(document))


@click.command()
@_pod_options
@_kind_options
@click.option(
    "--sums", metavar="FILE", help="Check shards against sha256sum lines (else SHA256SUMS)."
)
@columns_options(BUILT, PLANNED)
@mutation_options(
    dry_run="Say what would be built, build nothing.",
    if_token=IF_TOKEN,
    lock_wait=LOCK_WAIT,
    files=("sums",),
    names=("pod", "placement"),
)
@home_options
@json_option
@jsonl_option
@click.pass_obj
def build(invocation: Invocation, pod: str | None, dry_run: bool, **flags: Any) -> int:
    """Write the banks of a pod from its checkpoint.

    The Station's bank holds every expert whole; each spark's holds its slice of the experts that
    the placement gives the sparks. Few records are in memory at a time. A build that was ended,
    by whatever, goes on where it stopped; a bank appears whole or not at all. What was written,
    how fast, and the share of hashing is kept as a receipt.
    """
    if dry_run:
        looked = {key: flags[key] for key in ("placement", "as_released", "no_whole", "no_slices")}
        _, document = work(invocation, "plan", pod, looked)
        _show_plan(invocation, document)
        invocation.output.record({"type": "done", "schema": "k3ctl.bank-plan/1", **document})
        return 0
    from k3ctl.client.bank_figures import build_event, build_figures

    code, document = work(invocation, "build", pod, flags)
    finish(invocation, "k3ctl.bank-build/1", document)
    invocation.listed((BUILT, document["banks"]), otherwise=lambda: show.build_lines(document))
    figures = build_figures(document)
    keep_figures(invocation, "bank-build", figures)
    note(invocation, build_event(document), figures or {})
    return code


@click.command()
@_pod_options
@click.option("--node", metavar="NAME", multiple=True, help="Only to this spark; repeatable.")
@click.option(
    "--to", metavar="NODE=HOST:PORT", multiple=True, help="Where a spark receives; repeatable."
)
@click.option("--rate", metavar="BYTES", help="Most bytes a second, as 200M or 2G; 256K at least.")
@columns_options(STAGED)
@mutation_options(
    dry_run="Ask the sparks what they lack, send nothing.",
    if_token=IF_TOKEN,
    lock_wait=LOCK_WAIT,
    names=("pod", "placement"),
)
@home_options
@json_option
@jsonl_option
@click.pass_obj
def stage(invocation: Invocation, pod: str | None, **flags: Any) -> int:
    """Send every spark its slice, all at once.

    A spark of another machine receives with `k3d bank receive`, on the port after its fabric_port;
    for those of this machine receivers are started here. Only records that are missing or damaged
    there are sent. A pod that comes up later fills its sparks from these banks and sends nothing.
    The exit code is 6 when some sparks failed and others did not.
    """
    from k3ctl.client.bank_figures import stage_event, stage_figures

    code, document = work(invocation, "stage", pod, flags)
    finish(invocation, "k3ctl.bank-stage/1", document)
    rows = [{**node, "sent": not document["dry_run"]} for node in document["nodes"]]
    invocation.listed((STAGED, rows), otherwise=lambda: show.stage_lines(document))
    figures = stage_figures(document)
    keep_figures(invocation, "bank-stage", figures)
    note(invocation, stage_event(document), figures or {})
    return judged(invocation, code, show.stage_error(document))


VERBS = (plan, build, stage)
