"""config.json: what is required, what is fixed, what is refused, each by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3d.errors import ConfigError
from k3d.model.config import ModelConfig
from tests.tiny_checkpoint import TinyModel

PATH = Path("folder/config.json")
TEXT = [
    "hidden_act", "activation_situ_beta", "activation_situ_linear_beta", "rms_norm_eps",
    "attn_res_block_size", "routed_expert_hidden_size", "latent_moe_use_norm", "mla_use_nope",
    "mla_use_output_gate", "first_k_dense_replace", "num_shared_experts", "hidden_size",
    "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "num_experts", "num_experts_per_token", "moe_intermediate_size", "moe_renormalize",
    "moe_router_activation_func", "routed_scaling_factor", "num_expert_group", "topk_group",
    "moe_layer_freq", "linear_attn_config"
]  # fmt: skip
LINEAR = [
    "use_full_rank_gate", "gate_lower_bound", "full_attn_layers", "kda_layers", "num_heads",
    "head_dim", "short_conv_kernel_size"
]  # fmt: skip

WIDTHS = [
    "vocab_size", "hidden_size", "attn_res_block_size", "num_attention_heads", "q_lora_rank",
    "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "num_experts", "num_experts_per_token",
    "num_shared_experts", "routed_expert_hidden_size", "moe_intermediate_size",
    "num_expert_group", "topk_group", "intermediate_size"
]  # fmt: skip


def document(layers: int = 9) -> dict[str, Any]:
    return TinyModel(layers=layers).config()


def parse(config: Any) -> ModelConfig:
    return ModelConfig.from_document(config, PATH)


def refusal(edit: Callable[[dict[str, Any], dict[str, Any]], None]) -> str:
    config = document()
    edit(config["text_config"], config["text_config"]["linear_attn_config"])
    with pytest.raises(ConfigError) as caught:
        parse(config)
    assert "config.json" in caught.value.message
    return caught.value.message


def test_a_tiny_config() -> None:
    config = parse(document(13))
    assert config.mla_layers == {3, 7, 11, 12}
    assert config.kda_layers == (0, 1, 2, 4, 5, 6, 8, 9, 10)
    assert config.moe_layers == tuple(range(1, 13))
    assert config.situ_bound == 100.0
    assert (config.bos_id, config.eos_id, config.pad_id) == (256, 258, 383)
    assert config.max_positions is None


@pytest.mark.parametrize("key", TEXT)
@pytest.mark.parametrize("null", [False, True], ids=["absent", "null"])
def test_required_keys_are_named(key: str, null: bool) -> None:
    def edit(text: dict[str, Any], _: dict[str, Any]) -> None:
        text.pop(key)
        if null:
            text[key] = None

    assert f"{key} is missing" in refusal(edit)


@pytest.mark.parametrize("key", LINEAR)
def test_required_keys_of_linear_attention_are_named(key: str) -> None:
    assert f"{key} is missing" in refusal(lambda _, linear: linear.pop(key))


@pytest.mark.parametrize("key", ["bos_token_id", "eos_token_id", "pad_token_id"])
def test_token_ids_are_required_in_either_place(key: str) -> None:
    config = document()
    del config[key]
    assert parse(config) == parse(document())
    del config["text_config"][key]
    with pytest.raises(ConfigError, match=f"{key} is missing"):
        parse(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "silu"),
        ("latent_moe_use_norm", False),
        ("mla_use_nope", False),
        ("mla_use_output_gate", False),
        ("moe_router_activation_func", "softmax"),
        ("moe_layer_freq", 2),
        ("tie_word_embeddings", True),
        ("topk_method", "greedy"),
    ],
)
def test_another_model_is_refused(key: str, value: object) -> None:
    message = refusal(lambda text, _: text.update({key: value}))
    assert key in message
    assert repr(value) in message


@pytest.mark.parametrize(
    ("key", "value"), [("use_full_rank_gate", False), ("short_conv_kernel_size", 3)]
)
def test_another_linear_attention_is_refused(key: str, value: object) -> None:
    assert key in refusal(lambda _, linear: linear.update({key: value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "160"),
        ("hidden_size", 160.5),
        ("hidden_size", -1),
        ("hidden_size", True),
        ("num_hidden_layers", 10**12),
        ("num_experts_per_token", 17),
        ("moe_intermediate_size", 24),
        ("routed_expert_hidden_size", 100),
        ("num_expert_group", 3),
        ("max_position_embeddings", "long"),
        ("first_k_dense_replace", 9),
        ("moe_renormalize", 1),
    ],
)
def test_values_that_no_model_has(key: str, value: object) -> None:
    refusal(lambda text, _: text.update({key: value}))


@pytest.mark.parametrize("key", WIDTHS)
def test_nothing_is_zero_wide(key: str) -> None:
    refusal(lambda text, _: text.update({key: 0}))


@pytest.mark.parametrize(
    "key",
    [
        "rms_norm_eps",
        "activation_situ_beta",
        "activation_situ_linear_beta",
        "routed_scaling_factor",
    ],
)
@pytest.mark.parametrize("value", ["1e-5", False, float("nan"), float("inf"), 0.0, -1.0])
def test_numbers_are_finite_and_positive(key: str, value: object) -> None:
    refusal(lambda text, _: text.update({key: value}))


@pytest.mark.parametrize(
    ("full", "kda"),
    [
        ([4, 8], [1, 2, 3, 5, 6, 7]),  # 9 is nowhere: "every fourth layer is MLA"
        ([3, 7, 8], [0, 1, 2, 4, 5, 6]),  # counted from 0
        ([4, 8, 9], [1, 2, 3, 5, 6, 7, 8]),  # 8 is in both
        ([4, 8, 9, 10], [1, 2, 3, 5, 6, 7]),
        ([4, 4, 9], [1, 2, 3, 5, 6, 7]),
        ([4, 8, "9"], [1, 2, 3, 5, 6, 7]),
        ("4,8,9", [1, 2, 3, 5, 6, 7]),
    ],
)
def test_layer_lists_cover_every_layer_once(full: object, kda: object) -> None:
    message = refusal(lambda _, lin: lin.update(full_attn_layers=full, kda_layers=kda))
    assert "full_attn_layers" in message


@pytest.mark.parametrize("model_type", ["kimi_linear", "deepseek_v3", None, 3])
def test_model_type(model_type: object) -> None:
    config = document()
    config["model_type"] = model_type
    with pytest.raises(ConfigError, match="not 'kimi_k3'"):
        parse(config)


@pytest.mark.parametrize("section", [None, [], "text", 3])
def test_sections_are_objects(section: object) -> None:
    with pytest.raises(ConfigError):
        parse(section)
    with pytest.raises(ConfigError, match="text_config"):
        parse(document() | {"text_config": section})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        ModelConfig.from_folder(tmp_path)
    for content in (b"{", b"\xff\xfe", b"[" * 100_000, b""):
        (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(ConfigError, match=r"config\.json"):
            ModelConfig.from_folder(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        ModelConfig.from_folder(tmp_path)


def test_a_config_on_disk(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(document()))
    assert ModelConfig.from_folder(tmp_path) == parse(document())
