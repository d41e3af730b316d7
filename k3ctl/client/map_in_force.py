"""The pod that serves a home, or served it last, and the map it serves by, from state.db."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from k3d.errors import ConfigError, NotFound
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import PodDescription
from k3d.store.state import StateReader


@dataclass(frozen=True)
class InForce:
    """The map that a pod serves by, and the pod."""

    pod: PodDescription
    placed: PlacementMap
    policy: str


def read_in_force(home: Path) -> InForce:
    """Raises NotFound when no pod has served in this home."""
    with StateReader.open(home) as store:
        stored, newest = store.pod(), store.placement_map()
    if stored is None or newest is None:
        raise NotFound("no map is in force in this home", hint="start the pod: k3ctl pod up")
    try:
        pod = msgspec.convert(stored.description, PodDescription)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the pod in state.db is of another version: {error}",
            hint="start it again: k3ctl pod down; k3ctl pod up",
        ) from error
    return InForce(pod, PlacementMap.from_json(newest.map_json), newest.policy)
