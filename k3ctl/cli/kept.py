"""Keeping what a command measured, with the command as it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from k3ctl.cli.options import Invocation
from k3ctl.client.receipts import NewReceipt, keep_receipt
from k3d.errors import K3Error


def keep(
    invocation: Invocation, kind: str, figures: Mapping[str, Any], environment: Mapping[str, Any]
) -> str | None:
    """The id of a receipt of the running command; None, with words, where it is not kept."""
    receipt = NewReceipt(
        kind=kind,
        provenance=str(figures["provenance"]),
        command=_command(click.get_current_context()),
        figures=figures,
        environment=environment,
    )
    try:
        return keep_receipt(invocation.home, receipt)
    except K3Error as error:
        invocation.output.note(f"the receipt was not kept: {error.message}")
        return None


def _command(context: click.Context) -> str:
    """The command with every option in force, as it would be typed again."""
    words = [context.command_path]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if value is None or value == ():
            continue
        if not isinstance(parameter, click.Option):
            words += map(str, value) if isinstance(value, tuple) else [str(value)]
        elif isinstance(value, bool):
            words += parameter.opts[:1] if value else parameter.secondary_opts[:1]
        else:
            listed = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [parameter.opts[0], listed]
    return " ".join(words)
