"""k3ctl init: the state database and the pod secret. Running it again changes nothing."""

from __future__ import annotations

import click

from k3ctl.cli.options import Invocation, home_options, json_option, mutation_options
from k3ctl.client.home_setup import set_up_home


@click.command
@mutation_options(
    dry_run="Say what would be made, make nothing.",
    lock_wait="How long to wait for another writer of the home.",
    makes_home=True,
)
@home_options
@json_option
@click.pass_obj
def init(invocation: Invocation, dry_run: bool, lock_wait: float) -> None:
    """Make the state database and the pod secret of a home.

    What exists is checked and kept: the command can be repeated.
    """
    setup = set_up_home(invocation.home, dry_run=dry_run, lock_wait_s=lock_wait)
    output = invocation.output
    output.document(
        "k3ctl.init/1",
        {
            "home": str(setup.home),
            "made": list(setup.made),
            "kept": list(setup.kept),
            "migrations": list(setup.migrations),
            "dry_run": dry_run,
        },
    )
    would = "would make" if dry_run else "made"
    output.text(f"home {setup.home}")
    for name in setup.made:
        output.text(f"  {would} {name}")
    for name in setup.kept:
        output.text(f"  {name} is there")
