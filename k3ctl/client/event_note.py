"""Noting in state.db what a command did: by the Station while it runs, else by this command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k3ctl.client.daemon import Daemon
from k3d.errors import FabricError, NotFound
from k3d.store.paths import state_path

WAIT_S = 2.0


def note_event(
    home: Path,
    kind: str,
    message: str,
    *,
    node: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Raises K3Error when it cannot be noted; a home without a state.db keeps no events."""
    event = {"kind": kind, "message": message, "node": node, "detail": detail}
    try:
        with Daemon.station_of(home) as station:
            station.note_event(event)
    except (FabricError, NotFound):  # no Station runs: the lock is free
        if state_path(home).exists():
            _write(home, event)


def _write(home: Path, event: Mapping[str, Any]) -> None:
    from k3d.store.state import StateStore

    store = StateStore.open_as_writer(
        home, holder="k3ctl", wait_s=WAIT_S, hint="try again when it is done"
    )
    try:
        store.record_event(
            event["kind"], event["message"], node=event["node"], detail=event["detail"]
        )
    finally:
        store.close()
