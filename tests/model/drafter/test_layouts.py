"""Tensor lists: the real drafters' by arithmetic, and files that are not quite their layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from k3d.errors import CheckpointError
from k3d.model.drafter.config import BlockDrafting, ChainDrafting, DrafterConfig, GqaShape, MlaShape
from k3d.model.drafter.layouts import parameters, tensor_list
from k3d.model.drafter.rope import Rope
from k3d.model.drafter.vendors import read_config
from k3d.model.taps import Taps
from tests.model.drafter import tiny_drafter
from tests.model.drafter.conftest import Beside
from tests.tiny_checkpoint import VOCAB

Tensors = dict[str, Tensor]
PUBLISHED_MLA = MlaShape(64, 1536, 512, 128, 64, 128)


def published(layout: Any, attention: GqaShape | MlaShape, **other: Any) -> DrafterConfig:
    """A drafter of Kimi-K3 at its published sizes."""
    config = DrafterConfig(
        layout=layout,
        hidden_size=7168,
        layers=5,
        intermediate_size=14336,
        vocab_size=163840,
        rms_norm_eps=1e-5,
        attention=attention,
        rope=Rope(10000.0, 64, interleaved=False, yarn=None),
        taps=Taps((7, 23, 51, 67, 83), "materialized"),
        target_layers=93,
        block=7,
        windows=(None,) * 5,
        causal=(False,) * 5,
        drafting=BlockDrafting(163824, 256, (1.0,) * 7),
    )
    return replace(config, **other)


def test_the_published_drafters_tensors_and_sizes() -> None:
    eagle = published(
        "eagle3",
        PUBLISHED_MLA,
        layers=1,
        intermediate_size=18432,
        taps=Taps((1, 45, 89), "raw_prefix"),
        drafting=ChainDrafting(163840, norm_taps=True, norm_output=True),
    )
    for config, tensors, values, row_bytes in (
        (published("specforge", GqaShape(64, 16, 64)), 62, 2_249_289_601, 20_480),
        (published("inferact", PUBLISHED_MLA), 68, 3_562_312_961, 5_760),
        (published("speculators", GqaShape(96, 16, 64)), 64, 4_744_900_481, 20_480),
        (eagle, 20, None, 1_152 + 2 * 7168),
    ):
        specs = tensor_list(config)
        assert len({spec.name for spec in specs}) == len(specs) == tensors
        assert values is None or parameters(specs) == values
        assert 2 * config.row_width == row_bytes
    header = 8 + 2128
    assert 2 * parameters(tensor_list(eagle)) + header == 6_031_253_592


@pytest.mark.parametrize("kind", tiny_drafter.DOCUMENTS)
def test_a_layout_lists_what_is_published(kind: str, folder: Callable[[str], Path]) -> None:
    specs = tensor_list(read_config(folder(kind)))
    wanted = tiny_drafter.shapes(kind)
    if kind == "eagle30":
        wanted |= {"d2t": (tiny_drafter.DRAFT_VOCAB,), "t2d": (VOCAB,)}
    assert {spec.name: spec.shape for spec in specs} == wanted


class Damage:
    """Writes a drafter whose tensors were changed, and loads it."""

    def __init__(self, folder: Path, beside: Beside) -> None:
        self.folder = folder
        self.beside = beside

    def refusal(self, kind: str, change: Callable[[Tensors], object]) -> str:
        weights = tiny_drafter.tensors(kind)
        change(weights)
        tiny_drafter.write(self.folder, kind, weights=weights)
        with pytest.raises(CheckpointError) as caught:
            self.beside.load(self.folder)
        return str(caught.value)


@pytest.fixture
def damage(tmp_path: Path, beside: Beside) -> Damage:
    return Damage(tmp_path / "drafter", beside)


@pytest.mark.parametrize("kind", tiny_drafter.DOCUMENTS)
def test_a_missing_tensor_is_named(kind: str, damage: Damage) -> None:
    for name in ("layers.0.self_attn.o_proj.weight", "layers.0.mlp.up_proj.weight"):
        assert name in damage.refusal(kind, lambda weights, name=name: weights.pop(name))


def test_a_tensor_of_another_drafter_is_named(damage: Damage) -> None:
    def add(weights: Tensors) -> None:
        weights["fc_norm.0.weight"] = torch.ones(160)

    assert "fc_norm.0.weight" in damage.refusal("own", add)
    assert "fc_norm.0.weight" in damage.refusal("eagle30", add)


@pytest.mark.parametrize("kind", tiny_drafter.DOCUMENTS)
def test_another_shape_is_named(kind: str, damage: Damage) -> None:
    def narrow(weights: Tensors) -> None:
        name = "layers.0.mlp.down_proj.weight"
        weights[name] = weights[name][:, 1:].contiguous()

    message = damage.refusal(kind, narrow)
    assert "layers.0.mlp.down_proj.weight has shape [160, 95]" in message
    assert "[160, 96]" in message


def test_another_dtype_is_named(damage: Damage) -> None:
    def half(weights: Tensors) -> None:
        weights["norm.weight"] = weights["norm.weight"].half()

    assert "norm.weight" in damage.refusal("own", half)
    assert "F16, not BF16 or F32" in damage.refusal("own", half)


def test_values_that_are_no_numbers_are_named(damage: Damage) -> None:
    def poison(weights: Tensors) -> None:
        weights["markov_head.markov_w1.weight"][3, 3] = float("nan")

    assert "markov_w1.weight" in damage.refusal("own", poison)


@pytest.mark.parametrize("offset", [-1, 400])
def test_a_map_out_of_the_vocabulary_is_refused(offset: int, damage: Damage) -> None:
    def shift(weights: Tensors) -> None:
        weights["d2t"][0] = offset

    assert "d2t" in damage.refusal("eagle30", shift)


def test_a_file_that_is_cut_off_or_absent_is_refused(tmp_path: Path, beside: Beside) -> None:
    folder = tiny_drafter.write(tmp_path / "drafter", "own")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        beside.load(folder)
    path.unlink()
    with pytest.raises(CheckpointError, match="missing"):
        beside.load(folder)


def test_float32_files_load(tmp_path: Path, beside: Beside) -> None:
    weights = {name: tensor.float() for name, tensor in tiny_drafter.tensors("own").items()}
    beside.load(tiny_drafter.write(tmp_path / "drafter", "own", weights=weights))


def test_optional_copies_may_be_absent(tmp_path: Path, beside: Beside) -> None:
    """A chain of the whole vocabulary without a head of its own drafts with the model's."""
    weights = tiny_drafter.tensors("eagle31")
    del weights["embed_tokens.weight"], weights["lm_head.weight"]
    drafter = beside.load(tiny_drafter.write(tmp_path / "bare", "eagle31", weights=weights))
    weights["embed_tokens.weight"], weights["lm_head.weight"] = beside.embed, beside.head
    other = beside.load(tiny_drafter.write(tmp_path / "copies", "eagle31", weights=weights))
    rows = beside.rows(drafter)
    assert torch.equal(rows, beside.rows(other))
    arguments = ([rows], [5], [len(rows)], [4])
    assert drafter.propose(*arguments) == other.propose(*arguments)
