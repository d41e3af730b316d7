"""What the pods of a home need of its banks: models and maps in force."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from k3d.errors import K3Error, Refused
from k3d.model.checkpoint import Checkpoint
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER, PodDescription, load_pod, model_directory
from k3d.placement.slicing import slicing_of
from k3d.staging.clear import Needs
from k3d.staging.swapped_maps import SwappedMap
from k3d.store.records import StoredMap
from k3d.store.state import StateReader
from k3d.store.swaps import SwapReader


def needs_of(home: Path, pod: str) -> Needs:
    """Of the pod that came up last and the one named. Raises Refused where that cannot be told:
    without a map in force, while a change is under way, with a checkpoint that cannot be read."""
    with StateReader.open(home) as state:
        newest = state.placement_map()
        if newest is None:
            raise Refused(
                "no placement map was ever in force here, so nothing tells which banks are needed",
                hint="bring the pod up once: k3ctl pod up",
            )
        under_way = [*state.intents(state="planned"), *state.intents(state="running")]
        if under_way:
            raise Refused(
                f"a change is under way: {under_way[0].kind} {under_way[0].id}",
                hint="wait until it is done",
            )
        before = [state.placement_map(epoch) for epoch in _epochs_before(state, newest.epoch)]
        maps = [found for found in (newest, *before) if found is not None]
        stored = state.pod()
        pods = [load_pod(pod, home)]
        if stored is not None:
            pods.append(msgspec.convert(stored.description, PodDescription, strict=False))
        swapped = _swapped(SwapReader(state), maps, pods[-1])
    models = frozenset(_digest(each, home) for each in pods)
    return Needs(models, frozenset(found.digest for found in maps), newest.ts_ms / 1000, swapped)


def _epochs_before(state: StateReader, epoch: int) -> list[int]:
    """Of the map before the one in force, and of that which a swap would be taken back to: a swap
    of several waves has maps of its own between the two."""
    row = state.row("SELECT max(epoch) FROM placement_map WHERE epoch < ?", (epoch,))
    last = SwapReader(state).last_done()
    found = [None if row is None else row[0], None if last is None else last.plan["from_epoch"]]
    return [each for each in found if each is not None]


def _swapped(
    swaps: SwapReader, maps: Iterable[StoredMap], pod: PodDescription
) -> tuple[SwappedMap, ...]:
    """Those of some maps that swaps put in force, over the sparks that held their slices."""
    found = []
    for stored in maps:
        if swaps.planned_digest(stored.epoch) is None:
            continue
        placement = PlacementMap.from_json(stored.map_json)
        experts = frozenset((layer, e) for _, layer, e in placement.experts_in(SPARK_TIER))
        sparks = slicing_of(pod, swaps.sparks_of(stored.epoch)).sparks
        found.append(SwappedMap(stored.digest, experts, sparks))
    return tuple(found)


def _digest(pod: PodDescription, home: Path) -> str:
    folder = model_directory(pod, home)
    try:
        if folder is None:
            raise Refused(f"pod {pod.name} names no model")
        return Checkpoint(folder).digest
    except K3Error as error:
        raise Refused(
            f"which model pod {pod.name} serves cannot be told: {error.message}",
            hint="nothing was removed",
        ) from error
