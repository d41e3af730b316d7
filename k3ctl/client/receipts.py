"""Keeping a measured result in state.db: by the Station while it runs, else by this command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3ctl.client.daemon import Daemon
from k3d.errors import FabricError


@dataclass(frozen=True)
class NewReceipt:
    """A result and what is needed to measure it again; provenance as in k3d.store.schema."""

    kind: str
    provenance: str
    command: str
    figures: Mapping[str, Any]
    environment: Mapping[str, Any]


def keep_receipt(home: Path, receipt: NewReceipt) -> str:
    """Its id. Raises K3Error when it cannot be kept."""
    try:
        with Daemon.station_of(home) as station:
            return station.keep_receipt(vars(receipt))
    except FabricError:
        return _write(home, receipt)  # no Station runs: the lock is free


def _write(home: Path, receipt: NewReceipt) -> str:
    from k3d.store.state import StateStore

    store = StateStore.open_as_writer(
        home, holder="k3ctl bench", wait_s=2.0, hint="try again when it is done"
    )
    try:
        return store.record_receipt(
            receipt.kind,
            provenance=receipt.provenance,
            command=receipt.command,
            figures=receipt.figures,
            environment=receipt.environment,
        )
    finally:
        store.close()
