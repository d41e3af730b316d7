"""The experts as they were used around a moment of the past, from telemetry.db."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from k3ctl.client.experts import Experts, experts_of
from k3d.errors import K3Error, NotFound
from k3d.placement.placement_map import PlacementMap
from k3d.store.use_log import ExpertUses, uses_at


@dataclass(frozen=True)
class RecordedUse:
    """Experts, and of what their uses are: `rows` tokens up to `until_ms`. Both are None where no
    uses are known, which `experts.uses_reason` says why."""

    experts: Experts
    rows: int | None = None
    until_ms: int | None = None


def recorded_use(home: Path, placed: PlacementMap, at_ms: int) -> RecordedUse:
    """The experts of the map that was in force at a moment, in Unix milliseconds."""
    bare = experts_of(placed, None, "the use of experts was not recorded yet: that is done every "
                      "half hour, and when the pod is taken down")  # fmt: skip
    try:
        uses = uses_at(home, at_ms)
        sums = None if uses is None else _sums(uses, placed)
    except K3Error as error:
        return RecordedUse(replace(bare, uses_reason=error.message))
    if uses is None:
        return RecordedUse(bare)
    return RecordedUse(replace(bare, use_sums=sums, uses_reason=None), uses.rows, uses.at_ms)


def _sums(uses: ExpertUses, placed: PlacementMap) -> tuple[array[int], ...]:
    """A layer's uses summed up to each expert. Raises NotFound for those of another model."""
    layers, count = len(placed.layers), placed.experts
    if (uses.layers, uses.experts) != (layers, count):
        raise NotFound(
            f"the uses recorded then are of {uses.layers} layers of {uses.experts} experts, the "
            f"map has {layers} of {count}"
        )
    starts = range(0, layers * count, count)
    return tuple(
        array("q", accumulate(uses.counts[start : start + count], initial=0)) for start in starts
    )
