"""Refusing to bring up a pod where another one, or this one set up otherwise, runs already."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from k3ctl.client.map_in_force import read_in_force
from k3ctl.client.map_name import in_force_shown, map_name
from k3ctl.client.next_command import at_home
from k3ctl.client.pod_run import PodRun, read_pod_run
from k3ctl.client.processes import find_daemons
from k3d.errors import K3Error, Refused
from k3d.placement.pod import PodDescription

SHOWN = ("pod", "transport", "placement", "dtype", "chunk")


def refuse_another(home: Path, run: PodRun, description: PodDescription) -> None:
    """Raise Refused when daemons of another pod, or of this one set up otherwise, run here. Of a
    pod that differs in its placement alone, the map in force counts, and a swap is suggested."""
    before = read_pod_run(home)
    if before is None or before.digest == run.digest:
        return
    if not any(True for _ in find_daemons(home)):
        return
    placed_alike = msgspec.structs.replace(description, placement=before.placement)
    in_force = _name_in_force(home) or before.placement
    if placed_alike.digest == before.digest:
        raise _placed_otherwise(home, before, run.placement, in_force)
    differing = [
        f"{key} {getattr(before, key)}"
        for key in SHOWN
        if getattr(before, key) != getattr(run, key)
    ]
    raise Refused(
        f"a pod already runs in {home} with {', '.join(differing) or 'another description'}",
        hint="take it down first: k3ctl pod down",
    )


def _placed_otherwise(home: Path, before: PodRun, wanted: str, in_force: str) -> Refused:
    shown = in_force_shown({"placement": in_force, "policy": before.placement})
    told = f"this pod already runs in {home}, with placement {shown}"
    if map_name(in_force) == map_name(wanted):
        return Refused(
            f"{told}: what it was started with stays until it is taken down",
            hint=f"it serves by {map_name(wanted)} already; see: "
            + at_home("k3ctl placement status", home),
        )
    swap = at_home(f"k3ctl placement swap {shlex.quote(wanted)}", home)
    return Refused(told, hint=f"only the placement differs, change it while it serves: {swap}")


def _name_in_force(home: Path) -> str | None:
    """None while no Station has served here yet, or where state.db does not say."""
    try:
        return read_in_force(home).policy
    except K3Error:
        return None
