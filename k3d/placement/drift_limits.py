"""From where on drift matters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DriftLimits:
    """`divergence_bits` beyond noise; `overlap` is the published share of hot experts that two
    populations of traffic have in common; `gain` of replanning that is worth a swap."""

    divergence_bits: float = 0.05
    overlap: float = 0.35
    gain: float = 0.05
