"""What the verbs of `k3d bank` do. Each ends with one JSON document on stdout."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from k3d.errors import BankError, ExitCode
from k3d.staging.commands_check import run_scrub, run_verify, station_name
from k3d.staging.commands_make import run_build, run_plan, run_stage
from k3d.staging.documents import put
from k3d.staging.work_lock import work_lock
from k3d.store.home import banks_directory, resolve_home


def run_bank(options: Namespace) -> int:
    """Run one verb; its exit code. Raises K3Error."""
    home = resolve_home(options.home)
    actions: dict[str, Callable[[Namespace, Path], int]] = {
        "plan": run_plan, "build": run_build, "stage": run_stage, "receive": _receive,
        "verify": run_verify, "scrub": run_scrub, "ls": _list, "gc": _clear,
    }  # fmt: skip
    try:
        return actions[options.action](options, home)
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        raise BankError(f"{what}{error.strerror or error}", hint="check the disk") from error


def _receive(options: Namespace, home: Path) -> int:
    from k3d.staging.receive_run import run_receiver

    run_receiver(home, options, put)
    return int(ExitCode.OK)


def _list(options: Namespace, home: Path) -> int:
    from k3d.staging.inventory import inventory

    banks = banks_directory(home)
    put({
        "schema": "k3d.bank-ls/1",
        "folder": str(banks),
        "banks": inventory(banks, station_name(options, home)),
    })  # fmt: skip
    return int(ExitCode.OK)


def _clear(options: Namespace, home: Path) -> int:
    from k3d.staging.clear import clear, plan_clearing
    from k3d.staging.needs import needs_of
    from k3d.staging.plan_token import clearing_token, require_token

    banks = banks_directory(home)
    with work_lock(home, "gc", options.lock_wait, dry=options.dry_run):
        clearings = plan_clearing(banks, needs_of(home, options.pod))
        token = clearing_token(clearings)
        require_token(options.if_token, token)
        removed = [] if options.dry_run else clear(clearings)
    put({
        "schema": "k3d.bank-gc/1",
        "dry_run": options.dry_run,
        "folder": str(banks),
        "token": token,
        "freed_bytes": sum(clearing.size_bytes for clearing in removed),
        "files": [
            {
                "node": clearing.node,
                "file": clearing.path.name,
                "bytes": clearing.size_bytes,
                "remove": clearing.removable,
                "removed": clearing in removed,
                "reason": clearing.reason,
            }
            for clearing in clearings
        ],
    })  # fmt: skip
    return int(ExitCode.OK)
