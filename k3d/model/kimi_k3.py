"""The forward pass of Kimi-K3 over the rows of one lane.

A pass reads its lane's committed state and writes persistent buffers; routed experts are behind
one call that neither knows nor asks where an expert lives. Dtypes at the borders between
operations are the model's (bf16, or float32 in the fp32 mode); inside an operation it is float64.
"""

from __future__ import annotations

from typing import Protocol

import torch
from k3_kernels import (
    absorbed_attention,
    attn_res_mix,
    gated_head_norm,
    kda_gate,
    kda_rows,
    l2_norm,
    linear,
    rms_norm,
    route,
    short_conv,
    situ,
)
from k3_kernels.conv import TAPS
from k3_kernels.norm import sigmoid
from torch import Tensor

from k3d.model.config import LATENT_NORM_EPS, ModelConfig
from k3d.model.lane_state import LaneState
from k3d.model.weights import KdaWeights, MlaWeights, MlpWeights, ModelWeights, MoeWeights


class RoutedExperts(Protocol):
    """Where routed experts are computed. One layer is in flight at a time."""

    def start(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
        """ids i32, weights f32 [rows, top_k]; x [rows, latent]. Returns before the work is done."""
        ...

    def finish(self) -> Tensor:
        """f64 [rows, latent]: the weighted sum over the layer's experts, each exactly once."""
        ...

    def abandon(self) -> None:
        """Forget the layer in flight: its pass failed."""
        ...


class KimiK3:
    """The model; `max_rows` bounds the rows of a pass and sizes its buffers."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, dtype: torch.dtype, max_rows: int
    ) -> None:
        self.config = config
        self.weights = weights
        self.dtype = dtype
        self.max_rows = max_rows
        blocks = -(-config.layers // config.attn_res_block)
        # [rows, sources, hidden]: the AttnRes bank in order of creation, the live residual last.
        self._sources = torch.zeros(max_rows, blocks + 1, config.hidden_size, dtype=dtype)

    def forward(
        self, tokens: Tensor, lane: LaneState, experts: RoutedExperts, wanted: slice
    ) -> Tensor:
        """Run tokens i64 [rows] at lane.position...; logits f64 [wanted rows, vocab].

        The caller commits the lane when it accepts the pass.
        """
        config, weights = self.config, self.weights
        sources = self._sources[: tokens.shape[0]]
        sources[:, 0] = weights.embed[tokens].to(self.dtype)
        live = 0
        for index, layer in enumerate(weights.layers):
            mixed = self._mix(sources[:, : live + 1], layer.attn_query) if live else sources[:, 0]
            attended = self._attention(
                index,
                layer.attention,
                rms_norm(mixed, layer.input_norm, config.rms_norm_eps),
                lane,
            )
            if index % config.attn_res_block == 0:
                live += 1  # the residual so far joins the bank; a new one starts
                sources[:, live] = attended
            else:
                sources[:, live] += attended
            mixed = self._mix(sources[:, : live + 1], layer.mlp_query)
            x = rms_norm(mixed, layer.post_norm, config.rms_norm_eps)
            if isinstance(layer.mlp, MoeWeights):
                sources[:, live] += self._moe(index, layer.mlp, x, experts)
            else:
                sources[:, live] += self._mlp(layer.mlp, x)
        mixed = self._mix(sources[wanted, : live + 1], weights.output_query)
        return linear(rms_norm(mixed, weights.norm, config.rms_norm_eps), weights.head)

    def _mix(self, sources: Tensor, query: Tensor) -> Tensor:
        return attn_res_mix(sources, query, self.config.rms_norm_eps)

    def _attention(
        self, index: int, weights: KdaWeights | MlaWeights, x: Tensor, lane: LaneState
    ) -> Tensor:
        if isinstance(weights, MlaWeights):
            return self._mla(weights, x, lane.latents(index), lane.position)
        return self._kda(index, weights, x, lane)

    def _kda(self, index: int, weights: KdaWeights, x: Tensor, lane: LaneState) -> Tensor:
        config = self.config
        rows, heads, dim = x.shape[0], config.kda_heads, config.kda_head_dim
        channels = heads * dim
        side = lane.kda_work(index)
        projected = linear(x, weights.in_proj).to(self.dtype)
        qkv, gate, low_rank, beta = projected.split([3 * channels, channels, dim, heads], dim=-1)
        samples = torch.cat((side.conv, qkv))
        side.conv.copy_(samples[-(TAPS - 1) :])
        mixed = short_conv(samples, weights.conv).view(rows, 3, heads, dim)
        decay = kda_gate(
            linear(low_rank, weights.f_b).to(self.dtype).view(rows, heads, dim), weights.gate
        )
        out = kda_rows(
            l2_norm(mixed[:, 0]) * dim**-0.5,
            l2_norm(mixed[:, 1]),
            mixed[:, 2],
            decay,
            sigmoid(beta.double()),
            side.rows,
            lane.position,
        )
        normed = gated_head_norm(
            out.to(self.dtype), weights.o_norm, gate.reshape(rows, heads, dim), config.rms_norm_eps
        )
        return linear(normed.reshape(rows, channels), weights.o_proj).to(self.dtype)

    def _mla(self, weights: MlaWeights, x: Tensor, latents: Tensor, position: int) -> Tensor:
        config = self.config
        rows, heads, rank = x.shape[0], config.heads, config.kv_lora_rank
        projected = linear(x, weights.in_proj).to(self.dtype)
        low_rank, kv, gate = projected.split(
            [config.q_lora_rank, rank + config.rope_dim, heads * config.v_dim], dim=-1
        )
        latents[position : position + rows, :rank] = rms_norm(
            kv[:, :rank], weights.kv_a_norm, LATENT_NORM_EPS
        )
        latents[position : position + rows, rank:] = kv[:, rank:]
        low_rank = rms_norm(low_rank, weights.q_a_norm, LATENT_NORM_EPS)
        query = linear(low_rank, weights.q_b).to(self.dtype).view(rows, heads, -1).transpose(0, 1)
        nope, shared = query.split([config.nope_dim, config.rope_dim], dim=-1)
        absorbed = torch.cat((linear(nope, weights.key_up), shared.double()), dim=-1)
        context = absorbed_attention(
            absorbed,
            latents[: position + rows],
            torch.arange(position, position + rows),
            rank,
            (config.nope_dim + config.rope_dim) ** -0.5,
        )
        values = linear(context, weights.value_up).to(self.dtype)  # [heads, rows, v]
        values = values.transpose(0, 1).reshape(rows, -1).double()
        gated = (values * sigmoid(gate.double())).to(self.dtype)
        return linear(gated, weights.o_proj).to(self.dtype)

    def _situ_mlp(self, gate_up: Tensor, width: int) -> Tensor:
        gate, up = gate_up.to(self.dtype).split(width, dim=-1)
        config = self.config
        return situ(gate, up, config.situ_beta, config.situ_linear_beta).to(self.dtype)

    def _mlp(self, weights: MlpWeights, x: Tensor) -> Tensor:
        hidden = self._situ_mlp(linear(x, weights.gate_up), weights.width)
        return linear(hidden, weights.down).to(self.dtype)

    def _moe(self, index: int, weights: MoeWeights, x: Tensor, experts: RoutedExperts) -> Tensor:
        config = self.config
        projected = linear(x, weights.in_proj)
        logits, latent, shared = projected.split(
            [config.experts, config.latent_size, 2 * weights.shared_width], dim=-1
        )
        ids, shares = route(
            logits if self.dtype is torch.float64 else logits.float(),
            weights.router_bias,
            config.top_k,
            renormalize=config.renormalize,
            scaling=config.routed_scaling,
            groups=config.expert_groups,
            top_groups=config.top_groups,
        )
        experts.start(index, ids, shares, latent.to(self.dtype))
        hidden = self._situ_mlp(shared, weights.shared_width)
        shared_out = linear(hidden, weights.shared_down).to(self.dtype)
        routed = experts.finish().to(self.dtype)
        routed = rms_norm(routed, weights.routed_norm, config.rms_norm_eps)
        return linear(routed, weights.up_proj).to(self.dtype) + shared_out
