"""Kimi-K3's config.json: every key without which the checkpoint is another model is required."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3d.errors import CheckpointError, ConfigError

# The vendor's own latent norms are built without an epsilon and take the class default.
LATENT_NORM_EPS = 1e-6

_FIXED = {
    "hidden_act": "situ",
    "latent_moe_use_norm": True,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "moe_router_activation_func": "sigmoid",
    "moe_layer_freq": 1,
}
# Older configs leave these out; another value is another model.
_FIXED_IF_PRESENT = {"tie_word_embeddings": False, "topk_method": "noaux_tc"}
_FIXED_LINEAR = {"use_full_rank_gate": True, "short_conv_kernel_size": 4}


@dataclass(frozen=True)
class ModelConfig:
    """The text model. Layers are numbered from 0; widths are counts of channels."""

    vocab_size: int
    hidden_size: int
    layers: int
    rms_norm_eps: float
    attn_res_block: int
    mla_layers: frozenset[int]
    kda_heads: int
    kda_head_dim: int
    gate_lower_bound: float
    heads: int
    q_lora_rank: int
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    dense_width: int
    dense_layers: int
    experts: int
    top_k: int
    shared_experts: int
    latent_size: int
    expert_width: int
    renormalize: bool
    routed_scaling: float
    expert_groups: int
    top_groups: int
    situ_beta: float
    situ_linear_beta: float
    max_positions: int | None
    bos_id: int
    eos_id: int
    pad_id: int

    @property
    def moe_layers(self) -> tuple[int, ...]:
        return tuple(range(self.dense_layers, self.layers))

    @property
    def kda_layers(self) -> tuple[int, ...]:
        return tuple(layer for layer in range(self.layers) if layer not in self.mla_layers)

    @property
    def situ_bound(self) -> float:
        """No hidden activation of an expert is larger in magnitude."""
        return self.situ_beta * self.situ_linear_beta

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        path = folder / "config.json"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(
                f"{folder} holds no config.json", hint="name a checkpoint folder"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
        return cls.from_document(document, path)

    @classmethod
    def from_document(cls, document: Any, path: Path) -> ModelConfig:
        """From a parsed config.json; `path` is for messages."""
        read = _Reader(path)
        top = read.section(document, "")
        if top.get("model_type") != "kimi_k3":
            raise ConfigError(
                f"{path} describes model_type {top.get('model_type')!r}, not 'kimi_k3'",
                hint="k3pod runs Kimi-K3 checkpoints only",
            )
        text = read.section(read.value(top, "text_config", ""), "text_config")
        linear = read.section(
            read.value(text, "linear_attn_config", "text_config."), "text_config.linear_attn_config"
        )
        read.require(text, _FIXED, "text_config.")
        for source, prefix in ((top, ""), (text, "text_config.")):
            present = {k: v for k, v in _FIXED_IF_PRESENT.items() if source.get(k) is not None}
            read.require(source, present, prefix)
        read.require(linear, _FIXED_LINEAR, "text_config.linear_attn_config.")

        def whole(key: str, source: dict[str, Any] = text) -> int:
            return read.whole(source, key)

        def real(key: str, source: dict[str, Any] = text) -> float:
            return read.real(source, key)

        layers = whole("num_hidden_layers")
        config = cls(
            vocab_size=whole("vocab_size"),
            hidden_size=whole("hidden_size"),
            layers=layers,
            rms_norm_eps=real("rms_norm_eps"),
            attn_res_block=whole("attn_res_block_size"),
            mla_layers=read.mla_layers(linear, layers),
            kda_heads=whole("num_heads", linear),
            kda_head_dim=whole("head_dim", linear),
            gate_lower_bound=real("gate_lower_bound", linear),
            heads=whole("num_attention_heads"),
            q_lora_rank=whole("q_lora_rank"),
            kv_lora_rank=whole("kv_lora_rank"),
            nope_dim=whole("qk_nope_head_dim"),
            rope_dim=whole("qk_rope_head_dim"),
            v_dim=whole("v_head_dim"),
            dense_width=whole("intermediate_size"),
            dense_layers=whole("first_k_dense_replace"),
            experts=whole("num_experts"),
            top_k=whole("num_experts_per_token"),
            shared_experts=whole("num_shared_experts"),
            latent_size=whole("routed_expert_hidden_size"),
            expert_width=whole("moe_intermediate_size"),
            renormalize=read.flag(text, "moe_renormalize"),
            routed_scaling=real("routed_scaling_factor"),
            expert_groups=whole("num_expert_group"),
            top_groups=whole("topk_group"),
            situ_beta=real("activation_situ_beta"),
            situ_linear_beta=real("activation_situ_linear_beta"),
            max_positions=(
                whole("max_position_embeddings") if "max_position_embeddings" in text else None
            ),
            bos_id=read.whole(top if "bos_token_id" in top else text, "bos_token_id"),
            eos_id=read.whole(top if "eos_token_id" in top else text, "eos_token_id"),
            pad_id=read.whole(top if "pad_token_id" in top else text, "pad_token_id"),
        )
        _check(config, path)
        return config


class _Reader:
    """Reads required keys; every refusal names the key and the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def section(self, value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigError(f"{self.path}: {name or 'the document'} is not an object")
        return value

    def value(self, source: dict[str, Any], key: str, prefix: str = "") -> Any:
        if source.get(key) is None:
            raise ConfigError(
                f"{self.path}: required key {prefix}{key} is missing",
                hint="a default would run another model; use the checkpoint's own config.json",
            )
        return source[key]

    def whole(self, source: dict[str, Any], key: str) -> int:
        value = self.value(source, key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigError(f"{self.path}: {key} is {value!r}, not a whole number")
        return value

    def real(self, source: dict[str, Any], key: str) -> float:
        value = self.value(source, key)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ConfigError(f"{self.path}: {key} is {value!r}, not a number")
        if not math.isfinite(value):
            raise ConfigError(f"{self.path}: {key} is {value!r}, not a finite number")
        return float(value)

    def flag(self, source: dict[str, Any], key: str) -> bool:
        value = self.value(source, key)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.path}: {key} is {value!r}, not true or false")
        return value

    def require(self, source: dict[str, Any], wanted: dict[str, Any], prefix: str) -> None:
        for key, value in wanted.items():
            if self.value(source, key, prefix) != value:
                raise ConfigError(
                    f"{self.path}: {prefix}{key} is {source[key]!r}; Kimi-K3 has {value!r}",
                    hint="k3pod runs Kimi-K3 checkpoints only",
                )

    def mla_layers(self, linear: dict[str, Any], layers: int) -> frozenset[int]:
        """The config counts layers from 1; every layer is in exactly one of its two lists."""
        lists = {}
        for key in ("full_attn_layers", "kda_layers"):
            value = self.value(linear, key, "text_config.linear_attn_config.")
            if not isinstance(value, list) or not all(isinstance(n, int) for n in value):
                raise ConfigError(f"{self.path}: {key} is not a list of layer numbers")
            lists[key] = value
        listed = sorted(lists["full_attn_layers"] + lists["kda_layers"])
        if len(listed) != layers or listed != list(range(1, layers + 1)):
            raise ConfigError(
                f"{self.path}: full_attn_layers and kda_layers do not cover layers 1..{layers} "
                "once each"
            )
        return frozenset(n - 1 for n in lists["full_attn_layers"])


def _check(config: ModelConfig, path: Path) -> None:
    for name in ("vocab_size", "hidden_size", "layers", "attn_res_block", "kda_heads",
                 "kda_head_dim", "heads", "q_lora_rank", "kv_lora_rank", "nope_dim", "rope_dim",
                 "v_dim", "dense_width", "experts", "top_k", "shared_experts", "latent_size",
                 "expert_width", "expert_groups", "top_groups"):  # fmt: skip
        if getattr(config, name) < 1:
            raise ConfigError(f"{path}: {name} is 0")
    for name in ("rms_norm_eps", "situ_beta", "situ_linear_beta", "routed_scaling"):
        if getattr(config, name) <= 0:
            raise ConfigError(f"{path}: {name} is {getattr(config, name)}, not above 0")
    if config.dense_layers >= config.layers:
        raise ConfigError(f"{path}: {config.dense_layers} dense layers of {config.layers}; "
                          "no layer has routed experts")  # fmt: skip
    if config.top_k > config.experts:
        raise ConfigError(f"{path}: {config.top_k} experts a token of {config.experts}")
    if config.expert_width % 16 or config.latent_size % 16:
        raise ConfigError(f"{path}: expert widths are not whole FP4 blocks of 16")
    if config.experts % config.expert_groups:
        raise ConfigError(f"{path}: {config.experts} experts in {config.expert_groups} groups")


def refuse_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> CheckpointError:
    """The error for a tensor that contradicts config.json."""
    return CheckpointError(
        f"tensor {name} has shape {list(found)}; config.json asks for {list(wanted)}",
        hint="config.json and the shards are of different models",
    )
