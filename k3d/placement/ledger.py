"""The ledger: how many experts every tier of a pod holds after its reservations.

Experts are a tier's memory less its reservations, divided by the bytes of one, rounded down;
remainders are never pooled between nodes. A tier whose memory is not described counts by its
slots alone. The sparks hold slices of the same experts, so the smallest of them decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from k3d.placement.budget import Budget, Provenance, Reservation
from k3d.placement.census import Census
from k3d.placement.pod import SPARK_TIER, ModelFacts, Node, PodDescription, Tier


@dataclass(frozen=True)
class LedgerModel:
    """What the ledger needs of a model; `other_bytes` are the non-expert weights, if counted."""

    moe_layers: int
    experts_total: int
    expert_bytes: int
    provenance: Provenance
    source: str
    other_bytes: int | None = None

    @classmethod
    def from_census(cls, census: Census) -> LedgerModel:
        served = census.served
        return cls(
            census.moe_layers,
            census.experts_total,
            served.expert_bytes,
            served.provenance,
            census.source,
            served.other_bytes,
        )

    @classmethod
    def from_facts(cls, facts: ModelFacts) -> LedgerModel:
        total = facts.moe_layers * facts.experts
        return cls(facts.moe_layers, total, facts.expert_bytes, "reported", "pod description")


@dataclass(frozen=True)
class TierLedger:
    """One tier of one node, in whole experts: on a spark as many as its slices amount to.

    `fits` is None where the memory is not described. `described` is what the description's slots
    amount to, `experts` what the ledger counts; `uneven` is lost to having as many of every layer.
    """

    node: str
    tier: str
    simulated: bool
    memory: Budget | None
    reservations: tuple[Reservation, ...]
    budget_bytes: int | None
    fits: int | None
    uneven: int
    described: int
    experts: int
    left_bytes: int | None
    provenance: Provenance

    @property
    def short(self) -> int:
        """Described slots beyond what fits."""
        return 0 if self.fits is None else max(0, self.described - self.fits)


@dataclass(frozen=True)
class Ledger:
    """The pod's tiers and the model's experts."""

    pod: str
    model: LedgerModel
    slices: int
    tiers: tuple[TierLedger, ...]

    @property
    def by_tier(self) -> dict[str, int]:
        """Experts each tier holds; the sparks' number is the smallest of them, times the sparks."""
        held: dict[str, int] = {}
        for entry in self.tiers:
            if entry.tier == SPARK_TIER:
                least = min(held.get(SPARK_TIER, entry.experts), entry.experts)
                held[SPARK_TIER] = least
            else:
                held[entry.tier] = held.get(entry.tier, 0) + entry.experts
        if SPARK_TIER in held:
            held[SPARK_TIER] *= max(1, self.slices)
        return held

    @property
    def total(self) -> int:
        return sum(self.by_tier.values())

    @property
    def spare(self) -> int:
        """Experts that would still fit; negative when the pod is short."""
        return self.total - self.model.experts_total

    @property
    def shortages(self) -> tuple[str, ...]:
        """What is short, by name; empty when everything fits."""
        found = [
            f"tier {tier.tier} of {tier.node}: {tier.described} experts by its slots, "
            f"{tier.fits} fit, {tier.short} too many"
            for tier in self.tiers
            if tier.short
        ]
        if self.spare < 0:
            found.append(
                f"pod {self.pod}: {self.model.experts_total} experts, {self.total} places, "
                f"{-self.spare} short"
            )
        return tuple(found)


def make_ledger(pod: PodDescription, model: LedgerModel) -> Ledger:
    """The ledger of a pod for a model. What does not fit is in `shortages`, never an error."""
    tiers = tuple(_entry(pod, model, node, tier) for node in pod.nodes for tier in node.tiers)
    return Ledger(pod.name, model, pod.slice_count, tiers)


def _entry(pod: PodDescription, model: LedgerModel, node: Node, tier: Tier) -> TierLedger:
    slices = max(1, pod.slice_count) if tier.name == SPARK_TIER else 1
    described = tier.slots // slices
    memory = pod.budget(tier.name, node.name)
    if memory is None:
        return TierLedger(
            node.name, tier.name, node.simulated, None, (), None, None, 0, described, described,
            None, "simulated" if node.simulated else "assumed",
        )  # fmt: skip
    reservations = tuple(_counted(reservation, model) for reservation in memory.reservations)
    budget = memory.size_bytes - sum(reservation.size_bytes for reservation in reservations)
    fits = whole = max(0, budget) // model.expert_bytes
    if memory.even_layers:
        fits -= fits % model.moe_layers
    return TierLedger(
        node=node.name,
        tier=tier.name,
        simulated=node.simulated,
        memory=memory,
        reservations=reservations,
        budget_bytes=budget,
        fits=fits,
        uneven=whole - fits,
        described=described,
        experts=fits,
        left_bytes=budget - fits * model.expert_bytes,
        provenance="modelled",
    )


def _counted(reservation: Reservation, model: LedgerModel) -> Reservation:
    """The non-expert weights as the census counted them, if it did."""
    if not reservation.of_model or model.other_bytes is None:
        return reservation
    return msgspec.structs.replace(
        reservation,
        size_bytes=model.other_bytes,
        provenance=model.provenance,
        note=f"census from {model.source}",
    )
