"""Slicing: which sparks hold a slice of every expert on the sparks, and how many experts that is.

A pod whose description has N sparks cuts those experts into N slices. When one is lost, fewer of
them may hold larger slices, of fewer experts: as many bytes as before, or less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from k3d.errors import ConfigError
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SLICE_COUNTS, SPARK_TIER, PodDescription
from k3d.placement.swap_plan import Move, SwapPlan, Wave


@dataclass(frozen=True)
class Slicing:
    """Sparks in the order of their slices, and the experts that they hold together at most."""

    sparks: tuple[str, ...]
    slots: int

    def index(self, spark: str) -> int | None:
        """The slice that a spark holds; None for one that holds none."""
        return self.sparks.index(spark) if spark in self.sparks else None


def slicing_of(pod: PodDescription, sparks: Sequence[str] | None = None) -> Slicing:
    """The slicing over some sparks of a pod, by default over all. Names that the pod does not have
    are of another description: then over all, too."""
    every = tuple(spark.name for spark in pod.sparks)
    chosen = tuple(name for name in every if sparks is None or name in sparks)
    if not every or not chosen or (sparks is not None and len(chosen) != len(sparks)):
        chosen = every
    slots = pod.slots.get(SPARK_TIER, 0)
    return Slicing(chosen, slots * len(chosen) // len(every) if every else 0)


def over_fewer(pod: PodDescription, ready: Sequence[str]) -> Slicing | None:
    """The slicing over as many of the sparks that are ready as can share an expert; None without
    any."""
    count = max((n for n in SLICE_COUNTS if n <= len(ready)), default=0)
    return slicing_of(pod, ready[:count]) if count else None


def plan_cut(
    now: PlacementMap, wanted: PlacementMap, slots: Mapping[str, int], epoch: int
) -> SwapPlan:
    """The way to a map whose experts on the sparks are cut anew: one wave. `slots` are those then.

    The sparks are filled afresh after the turn, so their slots are numbered afresh; an expert that
    stays in a tier of the Station keeps its slot, and what enters one is copied beside the rest.
    Raises ConfigError naming a tier without room.
    """
    wanted = wanted.with_tiers(now.tiers)
    spark = now.tiers.index(SPARK_TIER)
    taken: list[set[int]] = [set() for _ in now.tiers]
    for tier, slot in zip(now.tier_of, now.slot_of, strict=True):
        taken[tier].add(slot)
    taken[spark] = set()
    free = [
        [slot for slot in reversed(range(slots.get(name, 0))) if slot not in taken[number]]
        for number, name in enumerate(now.tiers)
    ]
    slot_of, moves = list(now.slot_of), []
    for place, target in enumerate(wanted.tier_of):
        source = now.tier_of[place]
        if target == source and target != spark:
            continue
        if not free[target]:
            raise ConfigError(
                f"tier {now.tiers[target]} has no free slot for what is to enter it",
                hint="swap some of its experts away first, or give it more slots",
            )
        slot_of[place] = free[target].pop()
        if target != source:
            row, expert = divmod(place, now.experts)
            moves.append(
                Move(
                    now.layers[row], expert, now.tiers[source], now.slot_of[place],
                    now.tiers[target], slot_of[place],
                )
            )  # fmt: skip
    placed = replace(
        now, epoch=epoch, tier_of=wanted.tier_of, slot_of=tuple(slot_of), copies=(),
        origin=wanted.origin,
    )  # fmt: skip
    return SwapPlan(now, (Wave(tuple(moves), placed),), 0)
