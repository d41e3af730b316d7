"""Counts of what the router chose: committed rows only, whole passes only."""

from __future__ import annotations

import numpy as np
import torch

from k3d.experts.expert_use import ExpertUse
from tests.experts.tiny_experts import tiny_shape

SHAPE = tiny_shape()
ROWS = 6


def chosen(seed: int) -> torch.Tensor:
    """ids i32 [layers, ROWS, top_k]"""
    generator = torch.Generator().manual_seed(seed)
    size = (len(SHAPE.layers), ROWS, SHAPE.top_k)
    return torch.randint(SHAPE.experts, size, dtype=torch.int32, generator=generator)


def run_pass(use: ExpertUse, ids: torch.Tensor, layers: int | None = None) -> None:
    weights = torch.ones(ids.shape[1:])
    for row, layer in enumerate(SHAPE.layers[:layers]):
        use.routing.note(layer, ids[row], weights)


def counted(ids: torch.Tensor, rows: list[int]) -> np.ndarray:
    found = np.zeros((len(SHAPE.layers), SHAPE.experts), dtype=np.int64)
    for layer in range(len(SHAPE.layers)):
        for expert in ids[layer, rows].flatten().tolist():
            found[layer, expert] += 1
    return found


def test_rows_that_were_not_committed_do_not_count(seed: int) -> None:
    use, ids = ExpertUse(SHAPE, ROWS), chosen(seed)
    run_pass(use, ids)
    use.note([(0, 1), (2, 0), (3, 2)], ROWS)
    assert np.array_equal(use.snapshot(), counted(ids, [0, 3, 4]))
    assert use.rows == 3


def test_passes_add_up(seed: int) -> None:
    use = ExpertUse(SHAPE, ROWS)
    expected = np.zeros_like(use.snapshot())
    for number in range(3):
        ids = chosen(seed + number)
        run_pass(use, ids)
        use.note([(0, ROWS)], ROWS)
        expected += counted(ids, list(range(ROWS)))
    assert np.array_equal(use.snapshot(), expected)
    assert use.snapshot().sum() == 3 * ROWS * SHAPE.top_k * len(SHAPE.layers)


def test_a_pass_that_failed_midway_is_left_out(seed: int) -> None:
    use, ids = ExpertUse(SHAPE, ROWS), chosen(seed)
    run_pass(use, ids, layers=len(SHAPE.layers) - 1)
    use.note([(0, ROWS)], ROWS)
    assert use.snapshot().sum() == 0
    run_pass(use, ids)
    use.note([(0, ROWS - 1)], ROWS - 1)
    assert use.snapshot().sum() == 0, "the copy is of another pass"


def test_a_snapshot_does_not_change(seed: int) -> None:
    use = ExpertUse(SHAPE, ROWS)
    before = use.snapshot()
    run_pass(use, chosen(seed))
    use.note([(0, ROWS)], ROWS)
    assert before.sum() == 0
