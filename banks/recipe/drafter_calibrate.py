"""Sequential temperature scaling of a drafter's confidence: one temperature a position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BINS = 15
GRID = np.geomspace(0.2, 5.0, 65)


def survival(logits: np.ndarray, temperatures: Sequence[float]) -> np.ndarray:
    """Predicted chance [rounds, block] that drafts 1..k are all accepted, from logits likewise."""
    scaled = logits / np.asarray(temperatures)
    return np.cumprod(1.0 / (1.0 + np.exp(-scaled)), 1)


def calibration_error(predicted: np.ndarray, good: np.ndarray, known: np.ndarray) -> float:
    """Expected calibration error of chances against outcomes where they are known; equal bins."""
    chance, outcome = predicted[known], good[known].astype(float)
    if not len(chance):
        return 0.0
    place = np.minimum((chance * BINS).astype(int), BINS - 1)
    count = np.bincount(place, minlength=BINS)
    gap = np.bincount(place, chance - outcome, minlength=BINS)
    return float(np.abs(gap).sum() / count.sum())


def fitted_temperatures(logits: np.ndarray, good: np.ndarray, known: np.ndarray) -> list[float]:
    """Temperatures left to right, each minimising the error of the product up to its position."""
    chosen: list[float] = []
    for k in range(logits.shape[1]):
        errors = [
            calibration_error(
                survival(logits[:, : k + 1], [*chosen, float(t)])[:, k], good[:, k], known[:, k]
            )
            for t in GRID
        ]
        chosen.append(float(GRID[int(np.argmin(errors))]))
    return chosen
