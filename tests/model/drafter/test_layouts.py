"""Tensor lists: the real drafters' by arithmetic, and files that are not quite their layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from k3d.errors import CheckpointError
from k3d.model.drafter.layouts import parameters, tensor_list
from k3d.model.drafter.vendors import read_config
from tests.model.drafter import tiny_configs, tiny_drafter
from tests.model.drafter.conftest import Beside
from tests.tiny_checkpoint import VOCAB

Tensors = dict[str, Tensor]
WIDTHS = {"hidden_size": 7168, "intermediate_size": 14336, "vocab_size": 163840}
GQA = {"num_hidden_layers": 5, "num_key_value_heads": 16, "head_dim": 64}
MLA = {"num_attention_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,
       "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}  # fmt: skip
SLIDING = {"layer_types": ["sliding_attention"] * 5, "sliding_window": 2048}


def published(kind: str) -> dict[str, Any]:
    """config.json at the sizes it was published with for Kimi-K3."""
    document = tiny_configs.DOCUMENTS[kind]()
    if kind == "radixark":
        document |= WIDTHS | GQA | {"num_attention_heads": 64, "num_target_layers": 93}
        document["layer_types"] = ["full_attention"] * 5
        document["dflash_config"] |= {"markov_rank": 256, "mask_token_id": 163824,
                                      "target_layer_ids": [7, 23, 51, 67, 83]}  # fmt: skip
    elif kind == "inferact":
        document |= WIDTHS | MLA | {"num_hidden_layers": 5, "target_num_hidden_layers": 93}
        document |= {"target_hidden_size": 7168, "num_target_layers": 5, "markov_rank": 256,
                     "mask_token_id": 163837, "target_layer_ids": [2, 23, 47, 71, 89]}  # fmt: skip
    elif kind == "speculators":
        layer = document["transformer_layer_config"]
        layer |= WIDTHS | GQA | SLIDING | {"num_attention_heads": 96}
        document |= {"aux_hidden_state_layer_ids": [24, 48, 72, 88, 92], "markov_rank": 256,
                     "mask_token_id": 163837, "draft_vocab_size": 163840}  # fmt: skip
    else:
        document |= WIDTHS | MLA | {"intermediate_size": 18432, "draft_vocab_size": 163840}
        document["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [2, 46, 90]}
    return document


@pytest.mark.parametrize(
    ("kind", "tensors", "values", "row_width"),
    [
        ("radixark", 62, 2_249_289_601, 5 * 2 * 16 * 64),
        ("inferact", 68, 3_562_312_961, 5 * 576),
        ("speculators", 64, 4_744_900_481, 5 * 2 * 16 * 64),
        # 6,031,253,592 bytes, 8 + 2,128 of them the header.
        ("eagle31", 20, (6_031_253_592 - 2_136) // 2, 576 + 7168),
    ],
)
def test_the_published_drafters_tensors_and_sizes(
    kind: str, tensors: int, values: int, row_width: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(published(kind)))
    config = read_config(tmp_path)
    specs = tensor_list(config)
    assert len({spec.name for spec in specs}) == len(specs) == tensors
    assert parameters(specs) == values
    assert config.row_width == row_width


@pytest.mark.parametrize("kind", tiny_configs.DOCUMENTS)
def test_a_layout_lists_what_is_published(kind: str, folder: Callable[[str], Path]) -> None:
    specs = tensor_list(read_config(folder(kind)))
    wanted = tiny_drafter.shapes(kind)
    if kind == "eagle30":
        wanted |= {"d2t": (tiny_configs.DRAFT_VOCAB,), "t2d": (VOCAB,)}
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


@pytest.mark.parametrize("kind", tiny_configs.DOCUMENTS)
def test_a_missing_tensor_is_named(kind: str, damage: Damage) -> None:
    for name in ("layers.0.self_attn.o_proj.weight", "layers.0.mlp.up_proj.weight"):
        assert name in damage.refusal(kind, lambda weights, name=name: weights.pop(name))


def test_a_tensor_of_another_drafter_is_named(damage: Damage) -> None:
    def add(weights: Tensors) -> None:
        weights["fc_norm.0.weight"] = torch.ones(160)

    assert "fc_norm.0.weight" in damage.refusal("own", add)
    assert "fc_norm.0.weight" in damage.refusal("eagle30", add)


@pytest.mark.parametrize("kind", tiny_configs.DOCUMENTS)
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
