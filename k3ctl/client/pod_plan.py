"""What a pod description amounts to: where its experts go and which daemons it takes.

Made without any daemon, home or model at hand, so that a description can be checked anywhere.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from k3d.errors import ConfigError
from k3d.placement.model_facts import facts_of
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import (
    SPARK_TIER,
    ModelFacts,
    Node,
    PodDescription,
    check_pod,
    load_pod,
)
from k3d.placement.policy import load_policy, plan
from k3d.placement.policy_files import find_policy


@dataclass(frozen=True)
class PodOptions:
    """Flags that stand in for keys of the description; None leaves the key as it is."""

    transport: str | None = None
    placement: str | None = None
    dtype: str | None = None
    chunk: int | None = None


@dataclass(frozen=True)
class TierPlan:
    """One tier of one node. A spark's experts are slices; `memory_bytes` is modelled."""

    node: str
    role: str
    host: str
    tier: str
    slots: int
    experts: int
    memory_bytes: int
    simulated: bool


@dataclass(frozen=True)
class PodPlan:
    """A checked description with its model's facts and the map its policy makes."""

    description: PodDescription
    path: Path
    facts: ModelFacts
    placement_map: PlacementMap

    @property
    def tiers(self) -> list[TierPlan]:
        """Every tier of every node, in the description's order."""
        return [
            TierPlan(
                node=node.name,
                role=node.role,
                host=node.host,
                tier=tier.name,
                slots=tier.slots,
                experts=self.placement_map.counts.get(tier.name, 0),
                memory_bytes=self._memory_bytes(tier.name),
                simulated=node.simulated,
            )
            for node in self.description.nodes
            for tier in node.tiers
        ]

    @property
    def slots(self) -> int:
        return sum(self.description.slots.values())

    @property
    def experts(self) -> int:
        return self.facts.moe_layers * self.facts.experts

    def starts_here(self, node: Node) -> bool:
        """Whether `pod up` on this machine starts the node."""
        if node.role == "spark" and self.description.transport == "inproc":
            return False
        return node.loopback or node.host in _own_names()

    def as_json(self) -> dict[str, Any]:
        pod, facts = self.description, self.facts
        return {
            "pod": pod.name,
            "path": str(self.path),
            "digest": pod.digest,
            "model": pod.model,
            "model_facts": msgspec.structs.asdict(facts),
            "transport": pod.transport,
            "placement": pod.placement,
            "dtype": pod.dtype,
            "chunk": pod.chunk,
            "slices": pod.slice_count,
            "experts": self.experts,
            "slots": self.slots,
            "placement_digest": self.placement_map.digest,
            "placement_counts": self.placement_map.counts,
            "tiers": [
                {
                    "node": tier.node,
                    "tier": tier.tier,
                    "slots": tier.slots,
                    "experts": tier.experts,
                    "memory_bytes": tier.memory_bytes,
                    "memory_provenance": "modelled",
                    "simulated": tier.simulated,
                }
                for tier in self.tiers
            ],
            "nodes": [
                {
                    "name": node.name,
                    "role": node.role,
                    "host": node.host,
                    "starts_here": self.starts_here(node),
                }
                for node in pod.nodes
            ],
        }

    def _memory_bytes(self, tier: str) -> int:
        """Experts x bytes of an expert, over the slices on the spark tier."""
        slices = self.description.slice_count if tier == SPARK_TIER else 1
        return self.placement_map.counts.get(tier, 0) * self.facts.expert_bytes // slices


def make_plan(name_or_path: str, home: Path, options: PodOptions) -> PodPlan:
    """Check a description and place its experts.

    Raises NotFound for a description, policy or model that is not there, ConfigError naming the
    key, flag or tier that is wrong.
    """
    path = find_policy("pods", name_or_path, home).resolve()
    description = load_pod(str(path), home)
    changes = {key: value for key, value in vars(options).items() if value is not None}
    if changes:
        description = _changed(description, changes)
    facts = facts_of(description, home)
    policy = load_policy(description.placement, home)
    placed = plan(facts.moe_layer_numbers, facts.experts, description.slots, policy)
    return PodPlan(description, path, facts, placed)


def _changed(description: PodDescription, changes: dict[str, Any]) -> PodDescription:
    changed = msgspec.structs.replace(description, **changes)
    try:
        check_pod(changed)
    except ConfigError as error:
        flags = ", ".join(f"--{key}" for key in changes)
        raise ConfigError(f"with {flags}: {error.message}", hint=error.hint) from error
    return changed


def _own_names() -> set[str]:
    name = socket.gethostname()
    return {name, name.partition(".")[0]}
