"""Experts of every release format give the record they should."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from k3d.engine.offline import OfflineModel
from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint
from tests.experts.test_record import matrices_of
from tests.model.shard_editing import INDEX, copy_of
from tests.oracle import Oracle
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]


@pytest.mark.parametrize(
    "model",
    [
        TinyModel(seed=1),
        TinyModel(seed=1, release="mxfp4"),
        TinyModel(seed=7, requantised=True),
        TinyModel(seed=3, layers=13),
    ],
    ids=["nvfp4", "mxfp4", "free scales", "13 layers"],
)
def test_records_decode_to_the_release(tiny: Tiny, model: TinyModel) -> None:
    """Experts 2 and 10, layers 2 and 10: names are numbers, not words in a dictionary."""
    folder = tiny(model)
    source, oracle = ExpertSource(Checkpoint(folder)), Oracle(folder)
    for layer in (1, 2, model.layers - 1):
        for expert in (0, 1, 2, 10, 11, 15):
            found = matrices_of(source.shape, source.record(layer, expert))
            for name, matrix in zip(("w1", "w3", "w2"), found, strict=True):
                wanted = oracle.weight(
                    f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{name}"
                )
                assert np.array_equal(matrix, wanted), (layer, expert, name)


def test_both_releases_of_one_model_are_one_model(tiny: Tiny) -> None:
    """The NVFP4 release is an exact recast of the experts: the same matrices."""
    one, other = (
        ExpertSource(Checkpoint(tiny(TinyModel(seed=1, release=release))))
        for release in ("nvfp4", "mxfp4")
    )
    assert (one.shape.format, other.shape.format) == ("nvfp4", "mxfp4")
    for layer, expert in ((1, 0), (4, 10), (8, 15)):
        pairs = zip(
            matrices_of(one.shape, one.record(layer, expert)),
            matrices_of(other.shape, other.record(layer, expert)),
            strict=True,
        )
        for a, b in pairs:
            assert np.array_equal(a, b)


def test_recast_scales_are_the_released_kind(tiny: Tiny) -> None:
    """Powers of two up to 256, equal in pairs, w1 and w3 with one global scale."""
    checkpoint = Checkpoint(tiny(TinyModel(seed=1)))
    name = "model.layers.1.block_sparse_moe.experts.3"
    largest = []
    for matrix in ("w1", "w3", "w2"):
        scales = checkpoint.peek(f"{name}.{matrix}.weight_scale")
        values = scales.view(torch.float8_e4m3fn).double()
        assert torch.equal(values[:, 0::2], values[:, 1::2])
        assert torch.equal(torch.exp2(torch.log2(values).round()), values)
        largest.append(float(values.max()))
    assert max(largest[:2]) == largest[2] == 256
    one, other = (checkpoint.peek(f"{name}.{matrix}.weight_scale_2") for matrix in ("w1", "w3"))
    assert torch.equal(one, other)


def test_reciprocal_global_scales_are_divided_by(tiny: Tiny, tmp_path: Path) -> None:
    """compressed-tensors NVFP4: weight_packed and weight_global_scale, told by the suffix."""
    folder = tiny(TinyModel(seed=1))
    other = copy_of(folder, tmp_path / "divided")
    weight_map = {}
    for shard in sorted(other.glob("*.safetensors")):
        tensors = {}
        with safe_open(str(shard), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a dict
                tensor = file.get_tensor(name)
                if ".experts." in name and name.endswith("weight_scale_2"):
                    name = name.replace("weight_scale_2", "weight_global_scale")
                    tensor = 1.0 / tensor.view(1)
                elif ".experts." in name and name.endswith(".weight"):
                    name += "_packed"
                elif ".experts." in name and name.endswith("input_scale"):
                    name = name.replace("input_scale", "input_global_scale")
                tensors[name] = tensor
        save_file(tensors, shard)
        weight_map.update(dict.fromkeys(tensors, shard.name))
    (other / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    ids = [5, 300, 41, 7, 7, 19]
    one = OfflineModel(folder, "fp32", 6).logits(ids, 6)
    assert torch.equal(OfflineModel(other, "fp32", 6).logits(ids, 6), one)


def test_the_grid_follows_the_weights(tiny: Tiny) -> None:
    """Outputs 500 times smaller get a finer grid, so that they keep their bits."""
    plain = ExpertSource(Checkpoint(tiny(TinyModel(seed=3)))).shape
    small = ExpertSource(Checkpoint(tiny(TinyModel(seed=3, small=True)))).shape
    assert len(plain.grid_exponents) == len(plain.layers) == 8
    for one, other in zip(plain.grid_exponents, small.grid_exponents, strict=True):
        assert 8 <= one - other <= 10
