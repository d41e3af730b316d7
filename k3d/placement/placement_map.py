"""The placement map: for every routed expert, its tier and its slot there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from k3d.errors import ConfigError, NotFound
from k3d.placement.origin import Origin

SCHEMA = "k3-placement-map/1"


class _Document(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The map as JSON: numbers in layer order, experts within. `copies` is there if any is, and
    `origin` for a map planned from a trace."""

    schema: str
    epoch: int
    tiers: tuple[str, ...]
    layers: tuple[int, ...]
    experts: int
    tier_of: list[int]
    slot_of: list[int]
    copies: list[tuple[int, int, int]] = []
    origin: Origin | None = None


@dataclass(frozen=True)
class PlacementMap:
    """Where each expert of each MoE layer is. Two maps with the same `digest` place alike.

    `tier_of` and `slot_of` have one entry an expert, at layer position x experts + expert;
    `tier_of` indexes `tiers`. `layers` are model layer numbers of the MoE layers, ascending.
    `copies` are second homes of experts, as (position, tier, slot): planning and simulation may
    use either home, serving uses the first. `origin` is the trace it was planned from, if any.
    """

    epoch: int
    tiers: tuple[str, ...]
    layers: tuple[int, ...]
    experts: int
    tier_of: bytes
    slot_of: tuple[int, ...]
    copies: tuple[tuple[int, int, int], ...] = ()
    origin: Origin | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises ConfigError unless every expert has one tier and no slot is used twice."""
        if self.epoch < 1:
            raise ConfigError(f"placement map: epoch {self.epoch} is not 1 or later")
        if list(self.layers) != sorted(set(self.layers)):
            raise ConfigError("placement map: its layers are not in ascending order")
        total = len(self.layers) * self.experts
        if len(self.tier_of) != total or len(self.slot_of) != total:
            raise ConfigError(
                f"placement map: {len(self.tier_of)} tiers and {len(self.slot_of)} slots "
                f"are given for {total} experts"
            )
        if self.tier_of and max(self.tier_of) >= len(self.tiers):
            raise ConfigError(
                f"placement map: tier number {max(self.tier_of)} of {len(self.tiers)} tiers"
            )
        if self.slot_of and min(self.slot_of) < 0:
            raise ConfigError("placement map: a slot is negative")
        if self.origin is not None and len(self.origin.counts) != total:
            raise ConfigError(
                f"placement map: its origin counts {len(self.origin.counts)} experts of {total}"
            )
        self._check_copies()
        if len(set(self._places())) != total + len(self.copies):
            raise ConfigError(f"placement map: {self._doubled()}")

    def tier(self, layer: int, expert: int) -> str:
        return self.tiers[self.tier_of[self._position(layer, expert)]]

    def slot(self, layer: int, expert: int) -> int:
        return self.slot_of[self._position(layer, expert)]

    def experts_in(self, tier: str) -> list[tuple[int, int, int]]:
        """(slot, layer, expert) of everything in a tier, in slot order. Empty for no such tier."""
        if tier not in self.tiers:
            return []
        number = self.tiers.index(tier)
        found = [
            (self.slot_of[position], *self._expert_at(position))
            for position, owner in enumerate(self.tier_of)
            if owner == number
        ]
        return sorted(found)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Experts by tier, in the order of `tiers`; 0 for a tier that holds none."""
        return {tier: self.tier_of.count(number) for number, tier in enumerate(self.tiers)}

    @cached_property
    def digest(self) -> str:
        """Hex digest of the placement, without its epoch."""
        facts = msgspec.json.encode([self.tiers, self.layers, self.experts, self.slot_of])
        if self.copies:
            facts += msgspec.json.encode(self.copies)
        return hashlib.sha256(facts + b"\0" + self.tier_of).hexdigest()

    def require_slots(self, slots: Mapping[str, int]) -> None:
        """Raises ConfigError when a tier of the map is missing or its slots do not suffice."""
        highest = dict.fromkeys(self.tiers, -1)
        for number, slot in self._places():
            tier = self.tiers[number]
            highest[tier] = max(highest[tier], slot)
        for tier, slot in highest.items():
            if slot >= 0 and tier not in slots:
                raise ConfigError(f"placement map: the pod has no tier {tier!r}")
            if slot >= slots.get(tier, 0) and slot >= 0:
                raise ConfigError(
                    f"placement map: tier {tier} has {slots[tier]} slots and slot {slot} is used"
                )

    def with_epoch(self, epoch: int) -> PlacementMap:
        return replace(self, epoch=epoch)

    def with_tiers(self, tiers: Sequence[str]) -> PlacementMap:
        """The same placement with tiers in another order, which have to hold every one in use."""
        if tuple(tiers) == self.tiers:
            return self
        used = {number for number, _ in self._places()}
        missing = [self.tiers[number] for number in used if self.tiers[number] not in tiers]
        if missing:
            raise ConfigError(f"placement map: the pod has no tier {missing[0]!r}")
        number_of = [tiers.index(tier) if tier in tiers else 0 for tier in self.tiers]
        return replace(
            self,
            tiers=tuple(tiers),
            tier_of=bytes(number_of[number] for number in self.tier_of),
            copies=tuple((place, number_of[tier], slot) for place, tier, slot in self.copies),
        )

    def to_json(self) -> bytes:
        return msgspec.json.encode(
            _Document(
                SCHEMA,
                self.epoch,
                self.tiers,
                self.layers,
                self.experts,
                list(self.tier_of),
                list(self.slot_of),
                list(self.copies),
                self.origin,
            )
        )

    @classmethod
    def from_json(cls, text: bytes) -> PlacementMap:
        """Raises ConfigError when it is not a map or not a sound one."""
        try:
            document = msgspec.json.decode(text, type=_Document)
            tier_of = bytes(document.tier_of)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConfigError(f"placement map: {error}") from error
        if document.schema != SCHEMA:
            raise ConfigError(f"placement map: schema {document.schema!r} is not {SCHEMA!r}")
        return cls(
            document.epoch,
            document.tiers,
            document.layers,
            document.experts,
            tier_of,
            tuple(document.slot_of),
            tuple(document.copies),
            document.origin,
        )

    @cached_property
    def _row_of(self) -> dict[int, int]:
        return {layer: row for row, layer in enumerate(self.layers)}

    def _position(self, layer: int, expert: int) -> int:
        row = self._row_of.get(layer)
        if row is None or not 0 <= expert < self.experts:
            raise NotFound(f"the placement map has no layer {layer}, expert {expert}")
        return row * self.experts + expert

    def _expert_at(self, position: int) -> tuple[int, int]:
        row, expert = divmod(position, self.experts)
        return self.layers[row], expert

    def _places(self) -> list[tuple[int, int]]:
        """(tier, slot) of every expert, then of every copy."""
        homes = list(zip(self.tier_of, self.slot_of, strict=True))
        return homes + [(tier, slot) for _, tier, slot in self.copies]

    def _check_copies(self) -> None:
        for position, tier, slot in self.copies:
            sound = 0 <= position < len(self.tier_of) and 0 <= tier < len(self.tiers) and slot >= 0
            if not sound or self.tier_of[position] == tier:
                raise ConfigError(
                    f"placement map: the copy {[position, tier, slot]} is no second home in "
                    "another tier"
                )

    def _doubled(self) -> str:
        seen: dict[tuple[int, int], int] = {}
        owners = [*range(len(self.tier_of)), *(position for position, _, _ in self.copies)]
        for position, place in zip(owners, self._places(), strict=True):
            if place in seen:
                (layer, expert), (other, twin) = map(self._expert_at, (seen[place], position))
                return (
                    f"slot {place[1]} of {self.tiers[place[0]]} is given to layer {layer} "
                    f"expert {expert} and to layer {other} expert {twin}"
                )
            seen[place] = position
        return "a slot is given twice"


def number_slots(
    epoch: int, tiers: Sequence[str], layers: Sequence[int], experts: int, tier_of: bytes
) -> PlacementMap:
    """A map from tiers alone: slots are numbered in each tier by layer, then expert."""
    following = [0] * len(tiers)
    slot_of = []
    for number in tier_of:
        slot_of.append(following[number])
        following[number] += 1
    return PlacementMap(epoch, tuple(tiers), tuple(layers), experts, tier_of, tuple(slot_of))
