"""k3ctl bank: what a model is made of, how much of it a pod can hold, and the banks it is in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from k3ctl.cli import bank_check, bank_make
from k3ctl.cli.lazy import NounGroup
from k3ctl.cli.options import Invocation, home_options, json_option
from k3d.errors import ExitCode, K3Error

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@click.group(cls=NounGroup)
def bank() -> None:
    """Count a model, build its banks, send and keep them."""


def _release_options(command: Decorated) -> Decorated:
    """--config, --index and --headers."""
    for option in (
        click.option("--config", metavar="FILE", help="config.json, when it has another name."),
        click.option("--index", metavar="FILE", help="The index, plain or .gz."),
        click.option(
            "--headers/--no-headers",
            default=True,
            help="Count shard headers where shards are (the default), or never.",
        ),
    ):
        command = option(command)
    return command


@bank.command()
@click.argument("model", required=False, metavar="[MODEL]")
@_release_options
@home_options
@json_option
@click.pass_obj
def census(
    invocation: Invocation,
    model: str | None,
    config: str | None,
    index: str | None,
    headers: bool,
) -> None:
    """Count every tensor and byte of a model.

    MODEL is a checkpoint's directory, by default that of the embedded pod. From its shards'
    headers where they are here, else from config.json and the index alone.
    """
    from k3ctl.cli.bank_text import census_document, census_lines
    from k3d.placement.census import take_census

    folder = Path(model) if model else _embedded_model(invocation.home)
    counted = take_census(folder, _path(config), _path(index), headers=headers)
    invocation.output.document("k3ctl.bank-census/1", census_document(counted))
    invocation.output.lines(census_lines(counted))


@bank.command()
@click.argument("pod", default="embedded", metavar="[POD]")
@click.option("--model", metavar="DIR", help="Another model than the pod's.")
@_release_options
@home_options
@json_option
@click.pass_obj
def ledger(
    invocation: Invocation,
    pod: str,
    model: str | None,
    config: str | None,
    index: str | None,
    headers: bool,
) -> int:
    """Show how many experts each tier of a pod holds after its reservations.

    POD is a description, by name or file. The exit code is 1 when anything is short.
    """
    from k3ctl.cli.bank_text import ledger_document, ledger_lines
    from k3d.placement.census import take_census
    from k3d.placement.ledger import LedgerModel, make_ledger
    from k3d.placement.model_facts import facts_of
    from k3d.placement.pod import load_pod, model_directory

    description = load_pod(pod, invocation.home)
    own = model_directory(description, invocation.home)
    if model is not None:
        folder = Path(model)
    else:
        folder = own if own is not None and own.is_dir() else None
    if folder is not None or config is not None:
        counted = take_census(folder or Path(), _path(config), _path(index), headers=headers)
        of_model = LedgerModel.from_census(counted)
    else:
        of_model = LedgerModel.from_facts(facts_of(description, invocation.home))
    made = make_ledger(description, of_model)
    invocation.output.document("k3ctl.bank-ledger/1", ledger_document(made))
    invocation.output.lines(ledger_lines(made))
    if not made.shortages:
        return ExitCode.OK
    invocation.output.error(
        K3Error("; ".join(made.shortages), hint="correct the slots, or a budget's reservations")
    )
    return ExitCode.FAILED


def _path(given: str | None) -> Path | None:
    return None if given is None else Path(given)


def _embedded_model(home: Path) -> Path:
    from k3d.placement.pod import load_pod, model_directory

    folder = model_directory(load_pod("embedded", home), home)
    return folder or home


for _verb in (*bank_make.VERBS, *bank_check.VERBS):
    bank.add_command(_verb)
