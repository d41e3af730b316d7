"""The engine in fp32 against the float64 oracle on checkpoints of other seeds and shapes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from k3d.engine.offline import OfflineModel
from k3d.experts.source import ExpertSource
from k3d.experts.tiers import ExpertTiers
from k3d.model.checkpoint import Checkpoint
from k3d.model.kimi_k3 import KimiK3, Span
from k3d.model.lane_state import LaneState
from tests.oracle import Oracle, relative_error
from tests.tiny_checkpoint import TinyModel

TIGHT = 1e-9  # float64's own rounding, amplified by the layers, stays far below
Tiny = Callable[[TinyModel], Path]

MODELS = {
    "nvfp4": TinyModel(seed=1),
    "mxfp4": TinyModel(seed=2, release="mxfp4"),
    "small": TinyModel(seed=3, small=True),
    "small mxfp4": TinyModel(seed=4, small=True, release="mxfp4"),
    "13 layers": TinyModel(seed=3, layers=13),
    "13 layers mxfp4": TinyModel(seed=5, layers=13, release="mxfp4"),
    "13 layers small": TinyModel(seed=1, layers=13, small=True),
    "free scales": TinyModel(seed=7, requantised=True),
    "40 experts": TinyModel(seed=8, experts=40, top_k=6),
    "wide experts": TinyModel(seed=9, expert_width=128),
    "vision": TinyModel(seed=10, vision=True),
}


def draw_ids(seed: int, count: int = 40) -> list[int]:
    return np.random.default_rng(seed).integers(0, 384, count).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_fp32_logits(tiny: Tiny, name: str) -> None:
    model = MODELS[name]
    folder, ids = tiny(model), draw_ids(model.seed)
    found = OfflineModel(folder, "fp32", 64).logits(ids, 64).numpy()
    assert relative_error(found, Oracle(folder).logits(ids)) < TIGHT, f"seed {model.seed}"


@pytest.mark.parametrize("name", ["small", "13 layers mxfp4"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_cut_prompts_have_the_same_bits(tiny: Tiny, name: str, dtype: str) -> None:
    model = OfflineModel(tiny(MODELS[name]), dtype, 40)
    ids = draw_ids(MODELS[name].seed)
    whole = model.logits(ids, 40)
    for chunk in (3, 13, 16, 37):
        assert torch.equal(model.logits(ids, chunk), whole), f"chunks of {chunk}"


def test_bf16_follows_fp32(tiny: Tiny) -> None:
    """No number can be asked of bf16 logits on random weights; that they go together can."""
    folder, ids = tiny(MODELS["nvfp4"]), draw_ids(1)
    wide = OfflineModel(folder, "fp32", 64).logits(ids, 64)
    narrow = OfflineModel(folder, "bf16", 64).logits(ids, 64)
    assert relative_error(narrow.numpy(), wide.numpy()) < 0.3
    assert (narrow.argmax(-1) == wide.argmax(-1)).double().mean() > 0.7


class Recording:
    """Routed experts that keep what they gave, before any norm can hide a common factor."""

    def __init__(self, experts: ExpertTiers) -> None:
        self.experts = experts
        self.sums: list[np.ndarray] = []
        self.weights: list[np.ndarray] = []

    def start(self, layer: int, ids: torch.Tensor, weights: torch.Tensor, x: torch.Tensor) -> None:
        self.weights.append(weights.double().numpy())
        self.experts.start(layer, ids, weights, x)

    def finish(self) -> torch.Tensor:
        found = self.experts.finish()
        self.sums.append(found.numpy())
        return found

    def abandon(self) -> None:
        self.experts.abandon()


def record(model: OfflineModel, ids: list[int]) -> Recording:
    recording = Recording(model.experts)
    lane = LaneState.alone(model.config, model.model.dtype, len(ids))
    with torch.inference_mode():
        model.model.forward([Span(lane, ids)], recording, slice(None))
    return recording


@pytest.mark.parametrize("name", ["nvfp4", "small mxfp4"])
def test_routed_sums_before_their_norm(tiny: Tiny, name: str) -> None:
    """`routed_expert_norm` hides a missing renormalisation or scaling factor; this does not."""
    folder, ids = tiny(MODELS[name]), draw_ids(5)
    found = record(OfflineModel(folder, "fp32", 64), ids)
    oracle = Oracle(folder)
    oracle.logits(ids)
    assert len(found.sums) == len(oracle.routed_sums) == 8
    for weights in found.weights:
        assert np.allclose(weights.sum(-1), 1.0, atol=1e-6)
    for layer, (one, other) in enumerate(zip(found.sums, oracle.routed_sums, strict=True)):
        assert relative_error(one, other) < TIGHT, f"layer {layer + 1}"


def test_routed_scaling_factor(tiny: Tiny, tmp_path: Path) -> None:
    from tests.model.shard_editing import copy_of, edit_json

    folder = copy_of(tiny(MODELS["nvfp4"]), tmp_path / "scaled")
    edit_json(folder / "config.json", lambda c: c["text_config"].update(routed_scaling_factor=2.5))
    found = record(OfflineModel(folder, "fp32", 64), draw_ids(5))
    oracle = Oracle(folder)
    oracle.logits(draw_ids(5))
    assert relative_error(found.sums[0], oracle.routed_sums[0]) < TIGHT


def test_chosen_experts_are_those_of_an_exact_router(tiny: Tiny) -> None:
    """A router in bf16 would choose others near ties; the sum alone could hide one in many."""
    folder = tiny(MODELS["40 experts"])
    checkpoint = Checkpoint(folder)
    shape = ExpertSource(checkpoint).shape
    ids = draw_ids(11, 64)

    class Chosen(Oracle):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.sets: list[np.ndarray] = []

        def route(self, logits: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            chosen, shares = super().route(logits, bias)
            self.sets.append(np.sort(chosen, axis=-1))
            return chosen, shares

    oracle = Chosen(folder)
    oracle.logits(ids)
    model = OfflineModel(folder, "fp32", 64)
    asked: list[np.ndarray] = []

    class Noting(Recording):
        def start(
            self, layer: int, ids: torch.Tensor, weights: torch.Tensor, x: torch.Tensor
        ) -> None:
            asked.append(ids.numpy().copy())
            super().start(layer, ids, weights, x)

    lane = LaneState.alone(model.config, model.model.dtype, len(ids))
    with torch.inference_mode():
        model.model.forward([Span(lane, ids)], Noting(model.experts), slice(None))
    assert len(asked) == len(shape.layers)
    for one, other in zip(asked, oracle.sets, strict=True):
        assert (one == other).all()


def test_only_wanted_rows_meet_the_head(tiny: Tiny) -> None:
    model = OfflineModel(tiny(MODELS["nvfp4"]), "fp32", 40)
    ids = draw_ids(1)
    whole = model.logits(ids, 40)
    lane = LaneState.alone(model.config, model.model.dtype, 40)
    with torch.inference_mode():
        last = model.model.forward([Span(lane, ids)], model.experts, slice(39, None)).logits
    assert torch.equal(last, whole[39:])


def test_buffers_of_an_earlier_pass_leave_nothing(tiny: Tiny) -> None:
    model = OfflineModel(tiny(MODELS["nvfp4"]), "fp32", 40)
    fresh = model.logits(draw_ids(2), 40)
    model.logits(draw_ids(3), 40)
    assert isinstance(model.model, KimiK3)
    assert torch.equal(model.logits(draw_ids(2), 40), fresh)


@pytest.mark.campaign
@pytest.mark.parametrize("layers", [9, 13])
@pytest.mark.parametrize("release", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("small", [False, True], ids=["plain", "small"])
def test_many_seeds(tmp_path: Path, layers: int, release: str, small: bool) -> None:
    """Random weights amplify every rounding some fifty times, and more with more layers; the
    fp32 mode keeps float64 between operations, so that nothing is left to amplify."""
    errors = []
    for seed in range(100, 112):
        folder = tmp_path / str(seed)
        model = TinyModel(seed=seed, layers=layers, release=release, small=small)  # type: ignore[arg-type]
        model.write(folder)
        ids = draw_ids(seed, 64)
        found = OfflineModel(folder, "fp32", 64).logits(ids, 64).numpy()
        wanted = Oracle(folder).logits(ids)
        errors.append(relative_error(found, wanted))
    print(" ".join(f"{error:.1e}" for error in errors))
    assert max(errors) < TIGHT
