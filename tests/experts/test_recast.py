"""MXFP4 as NVFP4: the very same values, or a refusal by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from blake3 import blake3

from k3d.errors import CheckpointError
from k3d.experts.recast import recast
from k3d.experts.source import ExpertSource
from k3d.experts.worker import SliceWorker
from k3d.model.checkpoint import Checkpoint
from tests.experts.test_record import matrices_of
from tests.model import shard_editing as edit
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]
VALUES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
MXFP4 = TinyModel(seed=1, release="mxfp4", expert_width=256)


def value_of(codes: np.ndarray, scales: np.ndarray, group: int) -> np.ndarray:
    nibbles = np.stack((codes & 15, codes >> 4), axis=-1).reshape(len(codes), -1)
    values = np.where(nibbles & 8, -1.0, 1.0) * VALUES[nibbles & 7]
    return values * np.repeat(scales, group, axis=1)


def drawn(seed: int, exponents: list[int], nibbles: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix of one row a draw: blocks with these exponents, codes out of `nibbles`."""
    source = np.random.default_rng(seed)
    shape = (3, 16 * len(exponents))
    low, high = (source.choice(np.array(nibbles, dtype=np.uint8), shape) for _ in range(2))
    scales = np.broadcast_to(np.array(exponents, dtype=np.int64) + 127, (3, len(exponents)))
    return torch.from_numpy(low | high << 4), torch.from_numpy(scales.astype(np.uint8))


def values_before(matrix: tuple[torch.Tensor, torch.Tensor]) -> np.ndarray:
    codes, scales = (part.numpy() for part in matrix)
    return value_of(codes, 2.0 ** (scales.astype(np.int64) - 127.0), 32)


ANY = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("exponents", "nibbles"),
    [
        ([0, 0], ANY),
        ([-8, 9], ANY),  # a spread of 17 is what E4M3 holds
        ([-20, -3, -12], ANY),
        ([0, -18], [0, 2, 4, 5, 6, 7, 10]),  # halved once
        ([0, -20], [0, 6, 14]),  # halved three times: 4 becomes 0.5
        ([9, -9], [0, 1, 2, 3, 4, 5]),  # doubled once
        ([-60, 40], [0, 8]),  # nothing but zeros
    ],
)  # fmt: skip
def test_values_are_the_same(exponents: list[int], nibbles: list[int]) -> None:
    matrices = [drawn(seed, exponents, nibbles) for seed in (1, 2)]
    found = recast(matrices)
    assert found is not None
    assert len({scale for _, _, scale in found}) == 1
    for before, (codes, scales, scale) in zip(matrices, found, strict=True):
        spread = scales.view(torch.float8_e4m3fn).double().numpy() * scale
        assert np.array_equal(value_of(codes.numpy(), spread, 16), values_before(before))


@pytest.mark.parametrize(("exponents", "nibbles"), [([0, -18], ANY), ([0, -30], [6, 7])])
def test_what_would_not_be_exact_is_none(exponents: list[int], nibbles: list[int]) -> None:
    assert recast([drawn(5, exponents, nibbles)]) is None


def test_a_recast_release_is_the_nvfp4_release_byte_for_byte(tiny: Tiny) -> None:
    cast = ExpertSource(Checkpoint(tiny(MXFP4)), as_nvfp4=True)
    released = ExpertSource(Checkpoint(tiny(TinyModel(seed=1, expert_width=256))))
    assert (cast.shape.format, cast.recast_from) == ("nvfp4", "mxfp4")
    for layer, expert in ((1, 0), (4, 10), (8, 15)):
        assert cast.record(layer, expert) == released.record(layer, expert)


def test_recast_records_hold_the_release(tiny: Tiny) -> None:
    plain, cast = (
        ExpertSource(Checkpoint(tiny(MXFP4)), as_nvfp4=as_nvfp4) for as_nvfp4 in (False, True)
    )
    assert cast.shape.grid_exponents == plain.shape.grid_exponents
    pairs = zip(
        matrices_of(plain.shape, plain.record(3, 7)),
        matrices_of(cast.shape, cast.record(3, 7)),
        strict=True,
    )
    for one, other in pairs:
        assert np.array_equal(one, other)


def test_recast_experts_contribute_the_same_integers(tiny: Tiny, seed: int) -> None:
    """So tokens do not depend on which of the two banks a pod serves from."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 96, generator=draw, dtype=torch.float32)
    ids = torch.tensor([[0, 5, 9, 15]] * 3, dtype=torch.int32)
    weights = torch.rand(3, 4, generator=draw, dtype=torch.float32)
    partials = []
    for as_nvfp4 in (False, True):
        source = ExpertSource(Checkpoint(tiny(MXFP4)), as_nvfp4=as_nvfp4)
        worker = SliceWorker(source.shape, 4)
        for slot, expert in enumerate((0, 5, 9, 15)):
            record = source.record(3, expert)
            worker.load(slot, 3, expert, memoryview(record), blake3(record).digest())
        partials.append(worker.serve(3, ids, weights, x)[1])
    assert torch.equal(*partials)
    assert partials[0].any()


def test_where_the_cut_would_be_another_nothing_is_recast(tiny: Tiny) -> None:
    """64 columns are two atoms of MXFP4 and four of NVFP4."""
    narrow = Checkpoint(tiny(TinyModel(seed=1, release="mxfp4")))
    source = ExpertSource(narrow, as_nvfp4=True)
    assert (source.shape.format, source.recast_from) == ("mxfp4", None)


def test_nvfp4_is_left_as_it_is(tiny: Tiny) -> None:
    one = ExpertSource(Checkpoint(tiny(TinyModel(seed=1))))
    other = ExpertSource(Checkpoint(tiny(TinyModel(seed=1))), as_nvfp4=True)
    assert one.shape == other.shape
    assert other.recast_from is None


def test_an_expert_that_cannot_be_recast_is_named(tiny: Tiny, tmp_path: Path) -> None:
    folder = edit.copy_of(tiny(MXFP4), tmp_path / "wide")
    name = "language_model.model.layers.5.block_sparse_moe.experts.9.w2.weight_scale"
    edit.overwrite(folder, name, bytes([60]))
    source = ExpertSource(Checkpoint(folder), as_nvfp4=True)
    with pytest.raises(CheckpointError, match=r"layer 5 expert 9 cannot be recast") as caught:
        source.record(5, 9)
    assert "--as-released" in (caught.value.hint or "")
