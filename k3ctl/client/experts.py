"""The experts of a pod, one by one: where each is and how often it was chosen.

Slots are the placement map's, from state.db, which is there when no daemon is; tiers are the
Station's or else the map's. Uses are what the Station has counted since it started. What is not
available is None, uses with a reason.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from k3d.errors import K3Error, NotFound
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER
from k3d.store.frame import NodeFrame


class _Document(msgspec.Struct, frozen=True):
    """GET /experts, as far as it is read here."""

    layers: tuple[int, ...]
    uses: list[list[int]]
    tiers: list[list[int]]
    tier_names: tuple[str, ...]


@dataclass(frozen=True)
class Experts:
    """Every routed expert. `layers` are model layer numbers; `tier_of` and `slot_of` have one entry
    an expert, layer by layer. `use_sums` has a layer's uses summed up to each expert, a 0 before
    the first; it is None for `uses_reason`."""

    layers: tuple[int, ...]
    count: int
    tiers: tuple[str, ...]
    tier_of: bytes
    slot_of: tuple[int, ...] | None
    use_sums: tuple[array[int], ...] | None
    uses_reason: str | None = None

    def uses(self, layers: range, experts: range) -> int | None:
        """Of a rectangle of layer positions and experts; None where uses are not available."""
        sums = self.use_sums
        if sums is None:
            return None
        return sum(sums[at][experts.stop] - sums[at][experts.start] for at in layers)

    @property
    def total_uses(self) -> int | None:
        return None if self.use_sums is None else sum(row[-1] for row in self.use_sums)

    def times_even(self, layers: range, experts: range) -> float | None:
        """Uses of a rectangle as a multiple of what it would have if all experts were used alike;
        None where uses are not available or there were none."""
        uses, total = self.uses(layers, experts), self.total_uses
        if uses is None or not total:
            return None
        share = len(layers) * len(experts) / (len(self.layers) * self.count)
        return uses / (total * share)

    def tier_counts(self, layers: range, experts: range) -> dict[str, int]:
        """Experts of a rectangle by tier; tiers without any are left out."""
        found = {}
        for number, tier in enumerate(self.tiers):
            starts = (at * self.count for at in layers)
            count = sum(
                self.tier_of.count(number, start + experts.start, start + experts.stop)
                for start in starts
            )
            if count:
                found[tier] = count
        return found

    def layer_uses(self, position: int) -> list[int] | None:
        """Uses of every expert of a layer; None where they are not available."""
        if self.use_sums is None:
            return None
        sums = self.use_sums[position]
        return [sums[expert + 1] - sums[expert] for expert in range(self.count)]


@dataclass(frozen=True)
class ExpertFacts:
    """One expert. `share` is of the choices of its layer, `rank` its place there by use, from 1.
    `holders` are nodes with the slice that each has of it, None for all of it."""

    layer: int
    expert: int
    tier: str
    slot: int | None
    uses: int | None
    share: float | None
    times_even: float | None
    rank: int | None
    holders: tuple[tuple[str, str | None], ...]


def experts_of(
    placed: PlacementMap | None, document: Mapping[str, Any] | None, reason: str | None = None
) -> Experts:
    """Experts of the Station's document, of a map, or of both; `reason` is why there is no
    document. Raises NotFound when there is neither, K3Error for a document that is none."""
    if document is None:
        if placed is None:
            raise NotFound(
                f"nothing is known of the experts{': ' + reason if reason else ''}",
                hint="a pod that comes up places them: k3ctl pod up",
            )
        return Experts(
            placed.layers, placed.experts, placed.tiers, placed.tier_of, placed.slot_of, None,
            reason or "the Station was not asked",
        )  # fmt: skip
    try:
        told = msgspec.convert(dict(document), _Document)
        tier_of = b"".join(map(bytes, told.tiers))
    except (msgspec.ValidationError, ValueError) as error:
        raise K3Error(f"the Station's experts cannot be read: {error}") from None
    count = len(told.uses[0]) if told.uses else 0
    total = len(told.layers) * count
    if len(tier_of) != total or any(len(row) != count for row in told.uses):
        raise K3Error(f"the Station tells of {len(tier_of)} experts, of {total} with their uses")
    sums = tuple(array("q", accumulate(row, initial=0)) for row in told.uses)
    slot_of = None
    if placed is not None and placed.layers == told.layers and len(placed.slot_of) == total:
        slot_of = placed.slot_of
    return Experts(told.layers, count, told.tier_names, tier_of, slot_of, sums)


def map_of_epoch(home: Path, epoch: int | None = None) -> PlacementMap:
    """The placement map of an epoch, by default of the newest, read-only. Raises NotFound."""
    from k3d.store.state import StateReader

    with StateReader.open(home) as reader:
        stored = reader.placement_map(epoch or None)
    if stored is None:
        raise NotFound(
            "this home has no placement map" + (f" of epoch {epoch}" if epoch else ""),
            hint="a pod that comes up makes one: k3ctl pod up",
        )
    return PlacementMap.from_json(stored.map_json)


def expert_facts(
    experts: Experts, position: int, expert: int, nodes: Sequence[NodeFrame]
) -> ExpertFacts:
    """One expert of a layer, by the layer's position. `nodes` are the pod's, for its holders."""
    here = range(position, position + 1)
    uses = experts.uses(here, range(expert, expert + 1))
    total = experts.uses(here, range(experts.count))
    at = position * experts.count + expert
    tier = experts.tiers[experts.tier_of[at]]
    each = experts.layer_uses(position)
    known = uses is not None and bool(total)
    return ExpertFacts(
        layer=experts.layers[position],
        expert=expert,
        tier=tier,
        slot=None if experts.slot_of is None else experts.slot_of[at],
        uses=uses,
        share=uses / total if known else None,  # type: ignore[operator]
        times_even=uses * experts.count / total if known else None,  # type: ignore[operator]
        rank=None if each is None else 1 + sum(other > each[expert] for other in each),
        holders=holders_of(tier, nodes),
    )


def holders_of(tier: str, nodes: Sequence[NodeFrame]) -> tuple[tuple[str, str | None], ...]:
    """Nodes that hold an expert of a tier, with their slices: all sparks, or the Station."""
    if tier == SPARK_TIER:
        return tuple((node.name, node.slice) for node in nodes if node.role == "spark")
    return tuple((node.name, None) for node in nodes if node.role == "station")
