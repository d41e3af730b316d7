"""Every tensor of Kimi-K3's text model in a release, from config.json alone: name, dtype, shape.

| form | attention matrices | an expert's projection |
| --- | --- | --- |
| mxfp4 | BF16 | weight_packed U8, weight_scale U8 (32 values each) |
| nvfp4 | FP8, a scale for every 128 x 128 | weight U8, weight_scale FP8 (16 values), two scalars |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from k3d.errors import CheckpointError, NotFound
from k3d.placement.pod import MOST_EXPERTS

Form = Literal["nvfp4", "mxfp4"]
Whole = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Few = Annotated[int, msgspec.Meta(ge=1, le=2**16)]

PREFIX = "language_model."
PROJECTIONS = ("w1", "w2", "w3")
DTYPE_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1}
FP8_BLOCK = 128
_OTHER = "use the checkpoint's own config.json, of a Kimi-K3"


class Tensor(NamedTuple):
    """One tensor of a release; `shape` [] is a scalar."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


class LinearConfig(msgspec.Struct, frozen=True):
    """`full_attn_layers` counts from 1."""

    full_attn_layers: tuple[Whole, ...]
    num_heads: Whole
    head_dim: Whole
    short_conv_kernel_size: Whole


class TextConfig(msgspec.Struct, frozen=True):
    """The keys that sizes follow from, all required."""

    vocab_size: Whole
    hidden_size: Whole
    intermediate_size: Whole
    num_hidden_layers: Few
    num_attention_heads: Whole
    q_lora_rank: Whole
    kv_lora_rank: Whole
    qk_nope_head_dim: Whole
    qk_rope_head_dim: Whole
    v_head_dim: Whole
    first_k_dense_replace: Annotated[int, msgspec.Meta(ge=0)]
    num_experts: Few
    num_experts_per_token: Few
    num_shared_experts: Whole
    moe_intermediate_size: Whole
    routed_expert_hidden_size: Whole
    linear_attn_config: LinearConfig

    @property
    def moe_layers(self) -> range:
        return range(self.first_k_dense_replace, self.num_hidden_layers)


class _Config(msgspec.Struct):
    text_config: TextConfig


def read_text_config(path: Path) -> TextConfig:
    """Raises NotFound without the file, CheckpointError naming the key that is missing or wrong."""
    try:
        config = msgspec.json.decode(path.read_bytes(), type=_Config).text_config
    except FileNotFoundError as error:
        raise NotFound(f"there is no {path}", hint="name a checkpoint's directory") from error
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}", hint=_OTHER) from error
    if config.num_hidden_layers * config.num_experts > MOST_EXPERTS:
        raise CheckpointError(
            f"{path}: {config.num_hidden_layers} layers of {config.num_experts} experts are more "
            f"than {MOST_EXPERTS:,}",
            hint=_OTHER,
        )
    if not config.moe_layers:
        raise CheckpointError(f"{path}: no layer has routed experts", hint=_OTHER)
    if max(config.linear_attn_config.full_attn_layers, default=1) > config.num_hidden_layers:
        raise CheckpointError(f"{path}: full_attn_layers has a layer beyond the last", hint=_OTHER)
    if config.num_experts_per_token > config.num_experts:
        raise CheckpointError(
            f"{path}: {config.num_experts_per_token} experts a token of {config.num_experts}",
            hint=_OTHER,
        )
    for key in ("moe_intermediate_size", "routed_expert_hidden_size"):
        if getattr(config, key) % 32:
            raise CheckpointError(
                f"{path}: {key} is not a whole number of FP4 blocks of 32", hint=_OTHER
            )
    return config


def expert_tensors(config: TextConfig, form: Form) -> list[Tensor]:
    """The tensors of any one routed expert; names start with its projection."""
    latent, width = config.routed_expert_hidden_size, config.moe_intermediate_size
    tensors = []
    for projection, (rows, columns) in zip(
        PROJECTIONS, ((width, latent), (latent, width), (width, latent)), strict=True
    ):
        if form == "mxfp4":
            tensors.append(Tensor(f"{projection}.weight_packed", "U8", (rows, columns // 2)))
            tensors.append(Tensor(f"{projection}.weight_scale", "U8", (rows, columns // 32)))
        else:
            tensors.append(Tensor(f"{projection}.weight", "U8", (rows, columns // 2)))
            tensors.append(Tensor(f"{projection}.weight_scale", "F8_E4M3", (rows, columns // 16)))
            tensors.append(Tensor(f"{projection}.weight_scale_2", "F32", ()))
            tensors.append(Tensor(f"{projection}.input_scale", "F32", ()))
    return tensors


def other_tensors(config: TextConfig, form: Form) -> Iterator[Tensor]:
    """Everything of the text model but the routed experts, layer by layer."""
    hidden = config.hidden_size
    top = PREFIX + "model."
    yield Tensor(f"{PREFIX}lm_head.weight", "BF16", (config.vocab_size, hidden))
    yield Tensor(f"{top}embed_tokens.weight", "BF16", (config.vocab_size, hidden))
    for name in ("norm", "output_attn_res_norm"):
        yield Tensor(f"{top}{name}.weight", "BF16", (hidden,))
    yield Tensor(f"{top}output_attn_res_proj.weight", "BF16", (1, hidden))
    mla = {layer - 1 for layer in config.linear_attn_config.full_attn_layers}
    for layer in range(config.num_hidden_layers):
        prefix = f"{top}layers.{layer}."
        parts = [_norms(hidden), _mla(config, form) if layer in mla else _kda(config, form)]
        parts.append(_moe(config) if layer in config.moe_layers else _dense(config))
        for part in parts:
            for tensor in part:
                yield tensor._replace(name=prefix + tensor.name)


def _norms(hidden: int) -> Iterator[Tensor]:
    for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm",
                 "mlp_res_norm"):  # fmt: skip
        yield Tensor(f"{name}.weight", "BF16", (hidden,))
    for name in ("self_attention_res_proj", "mlp_res_proj"):
        yield Tensor(f"{name}.weight", "BF16", (1, hidden))


def _matrix(name: str, rows: int, columns: int, form: Form) -> Iterator[Tensor]:
    """A matrix of attention: FP8 with block scales in the NVFP4 release."""
    if form == "mxfp4":
        yield Tensor(f"self_attn.{name}.weight", "BF16", (rows, columns))
        return
    blocks = (-(-rows // FP8_BLOCK), 1, -(-columns // FP8_BLOCK), 1)
    yield Tensor(f"self_attn.{name}.weight", "F8_E4M3", (rows, columns))
    yield Tensor(f"self_attn.{name}.weight_scale", "F32", blocks)


def _kda(config: TextConfig, form: Form) -> Iterator[Tensor]:
    linear, hidden = config.linear_attn_config, config.hidden_size
    head_dim, width = linear.head_dim, linear.num_heads * linear.head_dim
    for name, rows, columns in (
        ("q_proj", width, hidden),
        ("k_proj", width, hidden),
        ("v_proj", width, hidden),
        ("g_proj", width, hidden),
        ("o_proj", hidden, width),
        ("f_a_proj", head_dim, hidden),
        ("f_b_proj", width, head_dim),
        ("b_proj", linear.num_heads, hidden),
    ):
        yield from _matrix(name, rows, columns, form)
    for name in ("q_conv1d", "k_conv1d", "v_conv1d"):
        yield Tensor(f"self_attn.{name}.weight", "F32", (width, 1, linear.short_conv_kernel_size))
    yield Tensor("self_attn.A_log", "F32", (head_dim,))
    yield Tensor("self_attn.dt_bias", "F32", (width,))
    yield Tensor("self_attn.o_norm.weight", "F32", (head_dim,))


def _mla(config: TextConfig, form: Form) -> Iterator[Tensor]:
    hidden, heads = config.hidden_size, config.num_attention_heads
    values = heads * config.v_head_dim
    latent, rope = config.kv_lora_rank, config.qk_rope_head_dim
    for name, rows, columns in (
        ("q_a_proj", config.q_lora_rank, hidden),
        ("q_b_proj", heads * (config.qk_nope_head_dim + rope), config.q_lora_rank),
        ("kv_a_proj_with_mqa", latent + rope, hidden),
        ("kv_b_proj", heads * (config.qk_nope_head_dim + config.v_head_dim), latent),
        ("g_proj", values, hidden),
        ("o_proj", hidden, values),
    ):
        yield from _matrix(name, rows, columns, form)
    yield Tensor("self_attn.q_a_layernorm.weight", "BF16", (config.q_lora_rank,))
    yield Tensor("self_attn.kv_a_layernorm.weight", "BF16", (latent,))


def _dense(config: TextConfig) -> Iterator[Tensor]:
    yield from _gated("mlp", config.intermediate_size, config.hidden_size)


def _moe(config: TextConfig) -> Iterator[Tensor]:
    hidden, latent = config.hidden_size, config.routed_expert_hidden_size
    moe = "block_sparse_moe"
    yield Tensor(f"{moe}.gate.weight", "BF16", (config.num_experts, hidden))
    yield Tensor(f"{moe}.gate.e_score_correction_bias", "F32", (config.num_experts,))
    yield Tensor(f"{moe}.routed_expert_down_proj.weight", "BF16", (latent, hidden))
    yield Tensor(f"{moe}.routed_expert_up_proj.weight", "BF16", (hidden, latent))
    yield Tensor(f"{moe}.routed_expert_norm.weight", "BF16", (latent,))
    shared = config.num_shared_experts * config.moe_intermediate_size
    yield from _gated(f"{moe}.shared_experts", shared, hidden)


def _gated(name: str, width: int, hidden: int) -> Iterator[Tensor]:
    for projection in ("gate_proj", "up_proj"):
        yield Tensor(f"{name}.{projection}.weight", "BF16", (width, hidden))
    yield Tensor(f"{name}.down_proj.weight", "BF16", (hidden, width))
