"""What is known of the costs of a pod's tiers in a home: receipts, hops, the description."""

from __future__ import annotations

from pathlib import Path

from k3d.errors import K3Error, NotFound
from k3d.placement.costs import RECEIPT, Costs, Cut, TierCost, costs_of
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import PodDescription
from k3d.placement.trace import Trace
from k3d.store.records import Receipt


def find_costs(home: Path, pod: PodDescription, trace: Trace, cut: Cut) -> Costs:
    """Costs of every tier, read-only: measured on this pod, else modelled from its hops, else as
    described. Raises ConfigError naming the tier of which nothing is known."""
    receipts = _receipts(home)
    try:
        return costs_of(pod, receipts, cut=cut)
    except K3Error:
        hops = _hops(home, pod, trace)
        if not hops:
            raise
        return costs_of(pod, receipts, hops, cut)


def _receipts(home: Path) -> list[Receipt]:
    from k3d.store.state import StateReader

    try:
        with StateReader.open(home) as store:
            return store.receipts(kind=RECEIPT)
    except NotFound:
        return []


def _hops(home: Path, pod: PodDescription, trace: Trace) -> dict[str, TierCost]:
    """Costs from telemetry, if the pod in this home is this one and has placed this model."""
    from k3d.placement.hop_costs import costs_from_hops
    from k3d.store.state import StateReader
    from k3d.store.telemetry import read_hops

    try:
        with StateReader.open(home) as store:
            stored, in_force = store.pod(), store.placement_map()
        if stored is None or stored.name != pod.name or in_force is None:
            return {}
        placed = PlacementMap.from_json(in_force.map_json)
        if (placed.layers, placed.experts) != (trace.layers, trace.experts):
            return {}
        return costs_from_hops(pod, read_hops(home, in_force.ts_ms // 1000), placed, trace)
    except NotFound:
        return {}
