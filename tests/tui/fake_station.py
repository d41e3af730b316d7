"""What panes ask a Station beside frames, answered from a formula: the same every time."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from k3d.errors import K3Error
from k3d.placement.placement_map import PlacementMap, number_slots

TIERS = ("hbm", "rtx", "grace", "spark")
OF_EIGHT = (0, 0, 1, 2, 2, 3, 3, 3)
"""Tiers of eight experts in a row."""
DEADLINE_S = 30.0


@dataclass
class FakeStation:
    """`hold` makes questions hang, `error` makes them fail. Expert (37 e + 11 l) mod `experts` of
    a layer position is used 1000 / (1 + that) times, rounded down."""

    layers: int = 12
    experts: int = 64
    epoch: int = 7
    error: K3Error | None = None
    document: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = threading.Event()
        self.free.set()

    def hold(self) -> None:
        self.free.clear()

    def release(self) -> None:
        self.free.set()

    def expert_use(self) -> dict[str, Any]:
        self._ask("expert_use")
        return {
            "schema": "k3d.experts/1",
            "layers": [1 + at for at in range(self.layers)],
            "uses": uses(self.layers, self.experts),
            "tiers": [list(tiers(at, self.experts)) for at in range(self.layers)],
            "tier_names": list(TIERS),
        }

    def placement(self) -> dict[str, Any]:
        self._ask("placement")
        return self.document

    def trace(self) -> dict[str, Any]:
        self._ask("trace")
        return {"path": None}

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        assert self.free.wait(DEADLINE_S), "nobody let the question go"
        if self.error is not None:
            raise self.error


def uses(layers: int, experts: int) -> list[list[int]]:
    """[layers][experts], a few much used and many hardly."""
    return [
        [1000 // (1 + (37 * expert + 11 * at) % experts) for expert in range(experts)]
        for at in range(layers)
    ]


def tiers(at: int, experts: int) -> bytes:
    """Tier numbers of the experts of a layer position."""
    return bytes(OF_EIGHT[(7 * expert + 3 * at) % 8] for expert in range(experts))


def placed(layers: int = 12, experts: int = 64, epoch: int = 7) -> PlacementMap:
    """The map that the Station's document is of."""
    tier_of = b"".join(tiers(at, experts) for at in range(layers))
    return number_slots(epoch, TIERS, [1 + at for at in range(layers)], experts, tier_of)
