"""The placement map that a Station serves by: which one it starts with, and how it turns."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch

from k3d.errors import ConfigError
from k3d.placement.placement_map import PlacementMap
from k3d.placement.slicing import Slicing
from k3d.store.state import StateStore
from k3d.store.swaps import SwapReader

log = logging.getLogger(__name__)


class MapInForce:
    """One map at a time, read by any thread. `planned_digest` is of the map that the pod's policy
    plans: what the Station would serve without swaps. `slicing` says which sparks hold its
    experts, `name` what it was asked for by: a policy, or a map's file."""

    def __init__(
        self,
        placement: PlacementMap,
        planned_digest: str,
        bank_digest: str,
        slicing: Slicing,
        name: str,
    ) -> None:
        self._placement = placement
        self.slicing = slicing
        self.name = name
        self.planned_digest = planned_digest
        self._bank_digest = bank_digest

    @property
    def placement(self) -> PlacementMap:
        return self._placement

    def turn_to(self, placement: PlacementMap, name: str, slicing: Slicing | None = None) -> None:
        """Between two passes; by another slicing where the sparks are cut anew."""
        self.slicing = slicing or self.slicing
        self.name = name
        self._placement = placement

    def held_digest(self, placement: PlacementMap) -> str:
        """What a spark holds is a placement of these very bytes: a bank built again refills it."""
        return f"{placement.digest}.{self._bank_digest}"


def tier_table(layers: int, placement: PlacementMap) -> torch.Tensor:
    """i8 [layers, experts]: the tier of every routed expert; -1 in dense layers."""
    table = torch.full((layers, placement.experts), -1, dtype=torch.int8)
    homes = torch.tensor(list(placement.tier_of), dtype=torch.int8)
    table[list(placement.layers)] = homes.view(len(placement.layers), placement.experts)
    return table


def map_to_serve(
    store: StateStore, planned: PlacementMap, policy: str, slots: Mapping[str, int]
) -> PlacementMap:
    """The map that was in force last, if it is `planned` or was swapped in since; else `planned`
    as a new epoch. An operator who names another policy gets that one."""
    last, swaps = store.placement_map(), SwapReader(store)
    if last is not None and swaps.planned_digest(last.epoch) == planned.digest:
        swapped = PlacementMap.from_json(last.map_json)
        try:
            swapped.require_slots(slots)
        except ConfigError as error:
            log.warning("the map of epoch %d no longer fits: %s", last.epoch, error)
        else:
            return swapped
    elif last is not None and last.digest == planned.digest:
        return planned.with_epoch(last.epoch)
    placement = planned.with_epoch(swaps.next_epoch())
    store.record_placement_map(placement.epoch, placement.digest, policy, placement.to_json())
    return placement
