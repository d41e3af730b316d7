"""Both golden checkpoints: logits, greedy ids, and the same bits however a prompt is cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from k3d.engine.offline import OfflineModel
from k3d.model.kimi_k3 import Span
from k3d.model.lane_state import LaneState
from tests.oracle import Oracle, relative_error

TOLERANCE = 2e-5
SPLITS = (1, 2, 3, 13, 37)


def reference(folder: Path) -> dict[str, list[int]]:
    return json.loads((folder / "golden.json").read_text())


def golden_logits(folder: Path) -> np.ndarray:
    return np.load(folder / "logits.npy")


class SingleDecode(Oracle):
    """The golden logits are of weights whose FP8 products were rounded to float32."""

    def _decode(self, name: str) -> np.ndarray:
        return super()._decode(name).astype(np.float32).astype(np.float64)


def test_the_oracle_is_right(golden: Path) -> None:
    found = SingleDecode(golden).logits(reference(golden)["ids"])
    assert relative_error(found, golden_logits(golden)) < 1e-12


def test_the_oracle_with_exact_weights_is_as_good_as_the_golden(golden: Path) -> None:
    found = Oracle(golden).logits(reference(golden)["ids"])
    assert relative_error(found, golden_logits(golden)) < 2e-6


def test_fp32_logits(golden: Path) -> None:
    ids = reference(golden)["ids"]
    found = OfflineModel(golden, "fp32", 64).logits(ids, 64)
    assert found.dtype == torch.float64
    assert relative_error(found.numpy(), golden_logits(golden)) < TOLERANCE
    assert (found.argmax(-1).numpy() == golden_logits(golden).argmax(-1)).all()


def test_greedy(golden: Path) -> None:
    """The prompt in one chunk and row by row; 48 decoded tokens."""
    wanted = reference(golden)
    model = OfflineModel(golden, "fp32", 16)
    assert model.generate(wanted["prompt"], len(wanted["greedy"]), 16) == wanted["greedy"]
    assert model.generate(wanted["prompt"], 8, 1) == wanted["greedy"][:8]


def split_logits(model: OfflineModel, ids: list[int], cuts: list[int]) -> Tensor:
    lane = LaneState.alone(model.config, model.model.dtype, len(ids))
    rows = []
    with torch.inference_mode():
        for start, stop in zip([0, *cuts], [*cuts, len(ids)], strict=True):
            span = Span(lane, ids[start:stop])
            rows.append(model.model.forward([span], model.experts, slice(None)).logits)
            model.model.commit(span, stop - start)
    return torch.cat(rows)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_prompt_cut_anywhere_has_the_same_bits(golden: Path, dtype: str) -> None:
    ids = reference(golden)["ids"]
    model = OfflineModel(golden, dtype, 64)
    whole = model.logits(ids, 64)
    for chunk in (64, 37, 16, 13, 5):
        assert torch.equal(model.logits(ids, chunk), whole), f"chunks of {chunk}"
    for split in SPLITS:
        assert torch.equal(split_logits(model, ids, [split]), whole), f"split at {split}"
    rows = split_logits(model, ids[:24], list(range(1, 24)))
    assert torch.equal(rows, whole[:24])


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_later_tokens_change_no_earlier_row(golden: Path, dtype: str) -> None:
    ids = reference(golden)["ids"]
    model = OfflineModel(golden, dtype, 64)
    whole = model.logits(ids, 64)
    other = model.logits([*ids[:30], *reversed(ids[30:])], 64)
    assert torch.equal(other[:30], whole[:30])
    assert not torch.equal(other[31:], whole[31:])


@pytest.mark.campaign
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("seed", range(10))
def test_many_cuts(golden: Path, dtype: str, seed: int) -> None:
    ids = reference(golden)["ids"]
    model = OfflineModel(golden, dtype, 64)
    whole = model.logits(ids, 64)
    random = np.random.default_rng(seed)
    for _ in range(5):
        count = int(random.integers(1, 20))
        cuts = sorted(random.choice(np.arange(1, 64), size=count, replace=False).tolist())
        assert torch.equal(split_logits(model, ids, cuts), whole), f"seed {seed}: cuts {cuts}"
