"""Dense weights of Kimi-K3, loaded one layer at a time into the form the kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from k3_kernels import KdaGate, Weight
from k3_kernels.quant import e4m3, fp8_block_scales, fp8_matrix
from torch import Tensor

from k3d.errors import CheckpointError
from k3d.model.checkpoint import Checkpoint
from k3d.model.config import ModelConfig


@dataclass(frozen=True)
class KdaWeights:
    """in_proj: q, k, v, gate, f_a, b stacked; conv f64 [4, 3 * channels]; o_norm f64 [dim]."""

    in_proj: Weight
    f_b: Weight
    o_proj: Weight
    conv: Tensor
    gate: KdaGate
    o_norm: Tensor


@dataclass(frozen=True)
class MlaWeights:
    """in_proj: q_a, kv_a, gate stacked; key_up [heads, rank, nope], value_up [heads, v, rank]."""

    in_proj: Weight
    q_a_norm: Tensor
    q_b: Weight
    kv_a_norm: Tensor
    key_up: Weight
    value_up: Weight
    o_proj: Weight


@dataclass(frozen=True)
class MlpWeights:
    """gate_up: gate rows, then up rows."""

    gate_up: Weight
    down: Weight
    width: int


@dataclass(frozen=True)
class MoeWeights:
    """in_proj: router, latent down projection, shared gate and up stacked."""

    in_proj: Weight
    router_bias: Tensor
    shared_down: Weight
    shared_width: int
    routed_norm: Tensor
    up_proj: Weight


@dataclass(frozen=True)
class LayerWeights:
    """One layer; `attn_query` and `mlp_query` are norm * proj of AttnRes, f64 [hidden]."""

    attn_query: Tensor
    mlp_query: Tensor
    input_norm: Tensor
    post_norm: Tensor
    attention: KdaWeights | MlaWeights
    mlp: MlpWeights | MoeWeights


@dataclass(frozen=True)
class ModelWeights:
    """Everything but the routed experts. embed [vocab, hidden] as stored; norms f64."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    output_query: Tensor
    norm: Tensor
    head: Weight


def load_weights(checkpoint: Checkpoint, *, fine: bool = False) -> ModelWeights:
    """Read the dense part of a checkpoint; `fine` keeps what the grid rounds away, for the fp32
    mode. Raises CheckpointError naming the tensor."""
    config = checkpoint.config
    vocab, hidden = config.vocab_size, config.hidden_size
    read = _LayerReader(checkpoint, "model.", fine)
    layers = tuple(_layer(checkpoint, layer, fine) for layer in range(config.layers))
    return ModelWeights(
        embed=_finite(checkpoint, "model.embed_tokens.weight", vocab, hidden),
        layers=layers,
        output_query=read.query("output_attn_res", hidden),
        norm=read.vector("norm.weight", hidden),
        head=Weight.from_matrix(
            _finite(checkpoint, "lm_head.weight", vocab, hidden).double(), fine=fine
        ),
    )


def _finite(checkpoint: Checkpoint, name: str, *shape: int) -> Tensor:
    """A plain tensor as stored; a NaN or an infinity in it would reach every token."""
    tensor = checkpoint.read(name, shape, "BF16", "F32")
    if not torch.isfinite(tensor).all():
        raise _not_numbers(checkpoint, name)
    return tensor


def _not_numbers(checkpoint: Checkpoint, name: str) -> CheckpointError:
    return CheckpointError(
        f"tensor {checkpoint.entry(name).name} holds values that are not numbers",
        hint="fetch the shard again",
    )


class _LayerReader:
    """Reads the tensors under one prefix, checking shapes and dtypes."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, fine: bool) -> None:
        self.fine = fine
        self._checkpoint = checkpoint
        self._prefix = prefix

    def plain(self, name: str, *shape: int) -> Tensor:
        return _finite(self._checkpoint, self._prefix + name, *shape).double()

    def vector(self, name: str, width: int) -> Tensor:
        return self.plain(name, width)

    def query(self, name: str, hidden: int) -> Tensor:
        norm = self.vector(f"{name}_norm.weight", hidden)
        return norm * self.plain(f"{name}_proj.weight", 1, hidden)[0]

    def weight(self, name: str, out: int, width: int) -> Weight:
        return Weight.from_matrix(self.plain(f"{name}.weight", out, width), fine=self.fine)

    def _fp8(self, name: str, out: int, width: int) -> tuple[Tensor, Tensor]:
        raw = self._checkpoint.read(f"{self._prefix}{name}.weight", (out, width), "F8_E4M3")
        if ((raw & 0x7F) == 0x7F).any():  # e4m3's NaN
            raise _not_numbers(self._checkpoint, f"{self._prefix}{name}.weight")
        blocks = (-(-out // 128), 1, -(-width // 128), 1)
        return raw, _finite(self._checkpoint, f"{self._prefix}{name}.weight_scale", *blocks)

    def attention(self, name: str, out: int, width: int) -> Weight:
        """An attention matrix: FP8 with block scales if the scale tensor is there, else plain."""
        if f"{self._prefix}{name}.weight_scale" not in self._checkpoint:
            return self.weight(name, out, width)
        raw, scale = self._fp8(name, out, width)
        return Weight.from_matrix(e4m3(raw), fp8_block_scales(scale, out))

    def attention_matrix(self, name: str, out: int, width: int) -> Tensor:
        """The same, decoded: f64 [out, in]."""
        if f"{self._prefix}{name}.weight_scale" not in self._checkpoint:
            return self.plain(f"{name}.weight", out, width)
        return fp8_matrix(*self._fp8(name, out, width))


def _layer(checkpoint: Checkpoint, layer: int, fine: bool) -> LayerWeights:
    config = checkpoint.config
    hidden = config.hidden_size
    prefix = f"model.layers.{layer}."
    read = _LayerReader(checkpoint, prefix, fine)
    attention = _LayerReader(checkpoint, prefix + "self_attn.", fine)
    is_mla = layer in config.mla_layers
    if is_mla != (f"{prefix}self_attn.q_a_proj.weight" in checkpoint):
        raise CheckpointError(
            f"config.json says layer {layer} is {'MLA' if is_mla else 'KDA'}; its tensors disagree",
            hint="full_attn_layers counts layers from 1",
        )
    return LayerWeights(
        attn_query=read.query("self_attention_res", hidden),
        mlp_query=read.query("mlp_res", hidden),
        input_norm=read.vector("input_layernorm.weight", hidden),
        post_norm=read.vector("post_attention_layernorm.weight", hidden),
        attention=_mla(attention, config) if is_mla else _kda(attention, checkpoint, layer),
        mlp=(
            _mlp(_LayerReader(checkpoint, prefix + "mlp.", fine), hidden, config.dense_width)
            if layer < config.dense_layers
            else _moe(_LayerReader(checkpoint, prefix + "block_sparse_moe.", fine), config)
        ),
    )


def _kda(read: _LayerReader, checkpoint: Checkpoint, layer: int) -> KdaWeights:
    config = checkpoint.config
    heads, dim, hidden = config.kda_heads, config.kda_head_dim, config.hidden_size
    channels = heads * dim
    projections = [read.attention(f"{name}_proj", channels, hidden) for name in "qkvg"]
    projections.append(read.attention("f_a_proj", dim, hidden))
    projections.append(read.attention("b_proj", heads, hidden))
    taps = [read.plain(f"{name}_conv1d.weight", channels, 1, 4)[:, 0].t() for name in "qkv"]
    # The release pads one A_log a head to more entries; the padding is zero and never used.
    stored = checkpoint.entry(f"model.layers.{layer}.self_attn.A_log")
    if len(stored.shape) != 1 or stored.shape[0] < heads:
        raise CheckpointError(f"tensor {stored.name} has shape {list(stored.shape)}, not one value "
                              f"for each of {heads} heads")  # fmt: skip
    a_log = read.plain("A_log", *stored.shape)
    if a_log[heads:].any():
        raise CheckpointError(f"tensor {stored.name} has values beyond its {heads} heads",
                              hint="config.json's num_heads is wrong")  # fmt: skip
    return KdaWeights(
        in_proj=Weight.stacked(projections),
        f_b=read.attention("f_b_proj", channels, dim),
        o_proj=read.attention("o_proj", hidden, channels),
        conv=torch.cat(taps, dim=1).contiguous(),
        gate=KdaGate(
            rate=torch.exp(a_log[:heads]).unsqueeze(-1),
            dt_bias=read.plain("dt_bias", channels).view(heads, dim),
            lower_bound=config.gate_lower_bound,
        ),
        o_norm=read.vector("o_norm.weight", dim),
    )


def _mla(read: _LayerReader, config: ModelConfig) -> MlaWeights:
    heads, hidden, rank = config.heads, config.hidden_size, config.kv_lora_rank
    query_dim = config.nope_dim + config.rope_dim
    in_proj = [
        read.attention("q_a_proj", config.q_lora_rank, hidden),
        read.attention("kv_a_proj_with_mqa", rank + config.rope_dim, hidden),
        read.attention("g_proj", heads * config.v_dim, hidden),
    ]
    kv_b = read.attention_matrix("kv_b_proj", heads * (config.nope_dim + config.v_dim), rank)
    key_rows, value_rows = kv_b.view(heads, -1, rank).split([config.nope_dim, config.v_dim], dim=1)
    return MlaWeights(
        in_proj=Weight.stacked(in_proj),
        q_a_norm=read.vector("q_a_layernorm.weight", config.q_lora_rank),
        q_b=read.attention("q_b_proj", heads * query_dim, config.q_lora_rank),
        kv_a_norm=read.vector("kv_a_layernorm.weight", rank),
        key_up=Weight.from_matrix(key_rows.transpose(1, 2).contiguous(), fine=read.fine),
        value_up=Weight.from_matrix(value_rows.contiguous(), fine=read.fine),
        o_proj=read.attention("o_proj", hidden, heads * config.v_dim),
    )


def _mlp(read: _LayerReader, hidden: int, width: int) -> MlpWeights:
    gate_up = [read.weight("gate_proj", width, hidden), read.weight("up_proj", width, hidden)]
    return MlpWeights(Weight.stacked(gate_up), read.weight("down_proj", hidden, width), width)


def _moe(read: _LayerReader, config: ModelConfig) -> MoeWeights:
    hidden, latent = config.hidden_size, config.latent_size
    shared_width = config.shared_experts * config.expert_width
    in_proj = [
        read.weight("gate", config.experts, hidden),
        read.weight("routed_expert_down_proj", latent, hidden),
        read.weight("shared_experts.gate_proj", shared_width, hidden),
        read.weight("shared_experts.up_proj", shared_width, hidden),
    ]
    return MoeWeights(
        in_proj=Weight.stacked(in_proj),
        router_bias=read.plain("gate.e_score_correction_bias", config.experts).float(),
        shared_down=read.weight("shared_experts.down_proj", hidden, shared_width),
        shared_width=shared_width,
        routed_norm=read.vector("routed_expert_norm.weight", latent),
        up_proj=read.weight("routed_expert_up_proj", hidden, latent),
    )
