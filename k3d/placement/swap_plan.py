"""Swap plans: what has to be copied to go from the map in force to another, and in which order.

An expert that stays in its tier keeps its slot. One that moves is copied to a free slot of its new
tier while the old copy is still served; its old slot is free once the epoch has turned. What does
not fit beside what is there goes in waves, each an epoch of its own. Where every slot that is
wanted is taken, an expert in the way is parked for a wave in the tier with the most free slots.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from k3d.errors import ConfigError
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER

TOKEN_CHARACTERS = 16


class Move(NamedTuple):
    """One expert's copy from its slot in one tier to a free slot in another."""

    layer: int
    expert: int
    source: str
    source_slot: int
    target: str
    target_slot: int


@dataclass(frozen=True)
class Wave:
    """Copies that fit beside everything served, and the map that is in force after them."""

    moves: tuple[Move, ...]
    placed: PlacementMap

    def into(self, tier: str) -> tuple[Move, ...]:
        return tuple(move for move in self.moves if move.target == tier)

    def out_of(self, tier: str) -> tuple[Move, ...]:
        return tuple(move for move in self.moves if move.source == tier)


@dataclass(frozen=True)
class SwapPlan:
    """The way from `now` to a map that places as the wanted one does. `parked` counts copies
    that only make room for others."""

    now: PlacementMap
    waves: tuple[Wave, ...]
    parked: int

    @property
    def final(self) -> PlacementMap:
        return self.waves[-1].placed if self.waves else self.now

    @property
    def moves(self) -> int:
        return sum(len(wave.moves) for wave in self.waves)

    @property
    def token(self) -> str:
        """Names the state that the plan was made from and where it leads."""
        state = f"{self.now.epoch} {self.now.digest} {self.final.digest}"
        return hashlib.sha256(state.encode()).hexdigest()[:TOKEN_CHARACTERS]


@dataclass(frozen=True)
class Traffic:
    """Bytes to copy: of each tier (all its nodes together) and to each node."""

    copies: dict[str, int]
    tier_bytes: dict[str, int]
    node_bytes: dict[str, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.node_bytes.values())


def plan_swap(
    now: PlacementMap, wanted: PlacementMap, slots: Mapping[str, int], first_epoch: int
) -> SwapPlan:
    """Plan the way from `now` to where `wanted` places experts; its waves are epochs from
    `first_epoch` on.

    Raises ConfigError when the two are not of one model, when `wanted` does not fit the slots, or
    naming the tiers that need a free slot when no tier has any.
    """
    if (now.layers, now.experts) != (wanted.layers, wanted.experts):
        raise ConfigError(
            f"placement map: it places {len(wanted.layers)} layers of {wanted.experts} experts, "
            f"the pod serves {len(now.layers)} of {now.experts}",
            hint="plan a map for this model",
        )
    wanted.require_slots(slots)
    return _Planner(now, wanted.with_tiers(now.tiers), slots).plan(first_epoch)


def traffic(plan: SwapPlan, station: str, sparks: Mapping[str, int], record_bytes: int) -> Traffic:
    """Bytes of a plan's copies. `sparks` gives each spark's bytes an expert."""
    copies: Counter[str] = Counter()
    for wave in plan.waves:
        copies.update(move.target for move in wave.moves)
    tiers = {tier: copies[tier] for tier in plan.now.tiers}
    slice_sum = sum(sparks.values())
    local = sum(count for tier, count in tiers.items() if tier != SPARK_TIER)
    sliced = tiers.get(SPARK_TIER, 0)
    return Traffic(
        tiers,
        {t: n * (slice_sum if t == SPARK_TIER else record_bytes) for t, n in tiers.items()},
        {station: local * record_bytes, **{s: sliced * size for s, size in sparks.items()}},
    )


class _Planner:
    """Where everything is while waves are planned: tier numbers and slots by position."""

    def __init__(self, now: PlacementMap, wanted: PlacementMap, slots: Mapping[str, int]) -> None:
        self.now = now
        self.goal = wanted.tier_of
        self.origin = wanted.origin
        self.tier_of = bytearray(now.tier_of)
        self.slot_of = list(now.slot_of)
        used: list[set[int]] = [set() for _ in now.tiers]
        for tier, slot in zip(now.tier_of, now.slot_of, strict=True):
            used[tier].add(slot)
        # The last is the lowest: the next to be taken.
        self.free = [
            [slot for slot in reversed(range(slots.get(name, 0))) if slot not in used[number]]
            for number, name in enumerate(now.tiers)
        ]

    def plan(self, first_epoch: int) -> SwapPlan:
        waves: list[Wave] = []
        parked = 0
        pending = [p for p, tier in enumerate(self.goal) if self.tier_of[p] != tier]
        while pending:
            steps = [(place, self.goal[place]) for place in pending]
            moves = self._carry_out(steps)
            if not moves:
                moves = self._carry_out(self._parking(pending))
                parked += len(moves)
            waves.append(Wave(tuple(moves), self._placed(first_epoch + len(waves))))
            pending = [p for p in pending if self.tier_of[p] != self.goal[p]]
        return SwapPlan(self.now, tuple(waves), parked)

    def _carry_out(self, steps: list[tuple[int, int]]) -> list[Move]:
        """Moves for which there is a free slot; the slots they leave are free afterwards."""
        tiers, moves = self.now.tiers, []
        left: list[tuple[int, int]] = []
        for place, target in steps:
            if not self.free[target]:
                continue
            source, source_slot = self.tier_of[place], self.slot_of[place]
            slot = self.free[target].pop()
            row, expert = divmod(place, self.now.experts)
            moves.append(
                Move(self.now.layers[row], expert, tiers[source], source_slot, tiers[target], slot)
            )
            left.append((source, source_slot))
            self.tier_of[place], self.slot_of[place] = target, slot
        for tier, slot in left:
            self.free[tier].append(slot)
        for tier in {tier for tier, _ in left}:
            self.free[tier].sort(reverse=True)
        return moves

    def _parking(self, pending: list[int]) -> list[tuple[int, int]]:
        """Experts that leave the most wanted tier anyway, to the tier with the most room."""
        entering = Counter(self.goal[place] for place in pending)
        roomy = max(range(len(self.free)), key=lambda tier: len(self.free[tier]))
        room = len(self.free[roomy])
        if not room:
            names = sorted(self.now.tiers[tier] for tier in entering)
            raise ConfigError(
                f"the swap is short of slots: {len(pending)} experts move into "
                f"{', '.join(names)}, and no tier of the pod has a free slot to copy one to",
                hint="give a tier one more slot in the pod description and restart the pod",
            )
        crowded, count = entering.most_common(1)[0]
        leaving = [place for place in pending if self.tier_of[place] == crowded]
        return [(place, roomy) for place in leaving[: min(room, count)]]

    def _placed(self, epoch: int) -> PlacementMap:
        return replace(
            self.now,
            epoch=epoch,
            tier_of=bytes(self.tier_of),
            slot_of=tuple(self.slot_of),
            copies=(),
            origin=self.origin,
        )
