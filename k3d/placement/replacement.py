"""Where the experts on the sparks can live when a spark is lost.

Every spark holds a slice of each of them, so with one spark all of them are out of reach. What is
left of the pod serves them from free slots of its other tiers, the most chosen experts in the
fastest tier that has one. Where those do not suffice, sparks that are left hold what they can in
larger slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from k3d.errors import Refused
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER
from k3d.placement.slicing import Slicing


class SlotsShort(Refused):
    """The other tiers do not have room: `short` slots are missing."""

    def __init__(self, message: str, short: int) -> None:
        super().__init__(
            message,
            hint="bring it back with k3ctl pod up, or give a tier more slots and restart the pod",
        )
        self.short = short


def without_sparks(
    now: PlacementMap,
    slots: Mapping[str, int],
    lost: Sequence[str],
    chosen: Sequence[int] = (),
    fewer: Slicing | None = None,
) -> PlacementMap:
    """The map in force with nothing on the sparks, or, over `fewer` of them, with as much as they
    hold. `slots` are the pod's, fastest tier first; `chosen` says how often each expert was
    chosen, in the order of `tier_of`. Slots on the sparks are left as they are.

    Raises SlotsShort with what is missing, by tier.
    """
    missing = shortage(now, slots, lost, fewer)
    if missing is not None:
        raise missing
    spark = now.tiers.index(SPARK_TIER) if SPARK_TIER in now.tiers else None
    places = [place for place, tier in enumerate(now.tier_of) if tier == spark]
    taken = {tier: {slot for slot, _, _ in now.experts_in(tier)} for tier in now.tiers}
    free = {
        tier: [slot for slot in range(slots[tier]) if slot not in taken[tier]]
        for tier in _others(now, slots)
    }
    if chosen:
        places.sort(key=lambda place: -chosen[place])
    leaving = len(places) if fewer is None else max(0, len(places) - fewer.slots)
    homes = ((now.tiers.index(tier), slot) for tier, left in free.items() for slot in left)
    tier_of, slot_of = bytearray(now.tier_of), list(now.slot_of)
    for place, (tier, slot) in zip(places[:leaving], homes, strict=False):
        tier_of[place], slot_of[place] = tier, slot
    return replace(now, tier_of=bytes(tier_of), slot_of=tuple(slot_of), copies=())


def shortage(
    now: PlacementMap,
    slots: Mapping[str, int],
    lost: Sequence[str],
    fewer: Slicing | None = None,
) -> SlotsShort | None:
    """What is missing for `without_sparks`; None when there is room."""
    needed = now.counts.get(SPARK_TIER, 0)
    free = {tier: slots[tier] - now.counts[tier] for tier in _others(now, slots)}
    room = sum(free.values())
    kept = 0 if fewer is None else fewer.slots
    if room + kept >= needed:
        return None
    short = needed - room - kept
    listed = ", ".join(f"{tier} {left:,}" for tier, left in free.items())
    also = "" if fewer is None else f" and {' and '.join(fewer.sparks)} would hold {kept:,}"
    return SlotsShort(
        f"without {' and '.join(lost)} {needed:,} experts have no place: the other tiers have "
        f"{room:,} free slots ({listed or 'there are none'}){also}, {short:,} short",
        short,
    )


def _others(now: PlacementMap, slots: Mapping[str, int]) -> list[str]:
    return [tier for tier in slots if tier in now.tiers and tier != SPARK_TIER]
