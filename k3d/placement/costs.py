"""What each tier takes in one layer of a pass, and where that is known from.

time(tier) = call_us + sum over the experts it reads of expert_us + (rows - 1) row_us

layer = slowest + contention x the others

Tiers of one processor take turns: their times add. Processors run at once, so a layer takes as
long as the slowest, and longer where they contend for something: for cores, when the nodes of a
pod are processes of one machine. A pod whose tiers are simulated has one processor at the Station.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import msgspec

from k3d.errors import ConfigError
from k3d.placement.budget import Provenance, TierName, TimeUs
from k3d.placement.pod import SPARK_TIER, PodDescription
from k3d.store.records import Receipt

RECEIPT = "tier-costs"
Cut = Literal["sliced", "whole"]


@dataclass(frozen=True)
class TierCost:
    """One tier as it serves; on the sparks `expert_us` is for a slice, or with "whole" an expert.

    `whole_us` and `slice_us` are both, whatever is in force; `source` says where they are from.
    """

    tier: str
    processor: str
    call_us: float
    expert_us: float
    row_us: float
    whole_us: float
    slice_us: float
    provenance: Provenance
    source: str


@dataclass(frozen=True)
class Costs:
    """Costs of a pod's tiers, in the order of its slots. `sparks` is how many share an expert.

    `contention` is the part of the faster processors' time that a layer takes longer than the
    slowest: 0 when they run at once, 1 when they take turns.
    """

    tiers: tuple[TierCost, ...]
    sparks: int
    cut: Cut
    contention: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(cost.tier for cost in self.tiers)

    @property
    def processors(self) -> tuple[int, ...]:
        """For each tier, the number of its processor."""
        names = list(dict.fromkeys(cost.processor for cost in self.tiers))
        return tuple(names.index(cost.processor) for cost in self.tiers)

    @property
    def ranked(self) -> tuple[str, ...]:
        """Tiers by microseconds an expert, the fastest first."""
        return tuple(c.tier for c in sorted(self.tiers, key=lambda c: (c.expert_us, c.call_us)))

    def with_cut(self, cut: Cut) -> Costs:
        """The same pod with its spark tier in slices or in whole experts."""
        tiers = [
            replace(cost, expert_us=cost.slice_us if cut == "sliced" else cost.whole_us)
            if cost.tier == SPARK_TIER
            else cost
            for cost in self.tiers
        ]
        return replace(self, tiers=tuple(tiers), cut=cut)


class _Measured(msgspec.Struct, frozen=True):
    """One tier in a receipt."""

    call_us: TimeUs
    expert_us: TimeUs
    row_us: TimeUs = 0.0
    whole_us: TimeUs | None = None


class _Figures(msgspec.Struct, frozen=True):
    """A receipt of kind RECEIPT; it counts for the pod and the number of sparks it was made on."""

    pod: str
    sparks: Annotated[int, msgspec.Meta(ge=0)]
    tiers: dict[TierName, _Measured]
    contention: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


def costs_of(
    pod: PodDescription,
    receipts: Sequence[Receipt] = (),
    hops: Mapping[str, TierCost] | None = None,
    cut: Cut = "sliced",
) -> Costs:
    """Costs of every tier: the newest receipt of this pod, else its hops, else its description.

    `hops` are costs modelled from telemetry (`k3d.placement.hop_costs`). Raises ConfigError naming
    the tier of which nothing is known.
    """
    measured, contention = _newest(pod, receipts)
    tiers = []
    for tier in pod.slots:
        found = measured.get(tier) or (hops or {}).get(tier) or _described(pod, tier)
        if found is None:
            raise ConfigError(
                f"nothing is known of what tier {tier} of pod {pod.name} costs: it was not "
                "measured here and the description has no [[cost]]",
                hint=f"measure it: k3ctl placement measure {pod.name}",
            )
        tiers.append(found)
    return Costs(tuple(tiers), pod.slice_count, cut, contention).with_cut(cut)


def processor_of(pod: PodDescription, tier: str) -> str:
    """What computes a tier: the Station's one process when simulated, else the tier itself."""
    return "station" if pod.station.simulated and tier != SPARK_TIER else tier


def _newest(pod: PodDescription, receipts: Iterable[Receipt]) -> tuple[dict[str, TierCost], float]:
    """Costs and contention of the newest receipt that is of this pod."""
    found: dict[str, TierCost] = {}
    contention = 0.0
    for receipt in sorted(receipts, key=lambda receipt: receipt.ts_ms):
        if receipt.kind != RECEIPT:
            continue
        try:
            figures = msgspec.convert(receipt.figures, _Figures)
            provenance = msgspec.convert(receipt.provenance, Provenance)
        except msgspec.ValidationError:
            continue  # of another version
        if (figures.pod, figures.sparks) != (pod.name, pod.slice_count):
            continue
        found, contention = {}, figures.contention
        for tier, cost in figures.tiers.items():
            whole = cost.expert_us
            if tier == SPARK_TIER:
                even = cost.expert_us * pod.slice_count
                whole = even if cost.whole_us is None else cost.whole_us
            found[tier] = TierCost(
                tier=tier,
                processor=processor_of(pod, tier),
                call_us=cost.call_us,
                expert_us=cost.expert_us,
                row_us=cost.row_us,
                whole_us=whole,
                slice_us=cost.expert_us,
                provenance=provenance,
                source=f"receipt {receipt.id}",
            )
    return found, contention


def _described(pod: PodDescription, tier: str) -> TierCost | None:
    cost = pod.cost(tier)
    if cost is None:
        return None
    slice_us = cost.expert_us
    if tier == SPARK_TIER:
        even = cost.expert_us / max(1, pod.slice_count)
        slice_us = even if cost.slice_us is None else cost.slice_us
    return TierCost(
        tier=tier,
        processor=processor_of(pod, tier),
        call_us=cost.call_us,
        expert_us=cost.expert_us,
        row_us=cost.row_us,
        whole_us=cost.expert_us,
        slice_us=slice_us,
        provenance=cost.provenance,
        source="pod description",
    )
