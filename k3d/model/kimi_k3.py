"""The forward pass of Kimi-K3 over the rows of several lanes.

A pass reads its lanes' committed state and writes beyond it; `commit` counts rows in. Routed
experts are behind one call that neither knows nor asks where an expert lives. Dtypes at the
borders between operations are the model's (bf16, or float32 in the fp32 mode); inside an
operation it is float64.

What mixes rows of one lane (convolution, recurrence, attention) runs a lane at a time; everything
else runs over all rows at once. A row's result depends on its own lane alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from k3_kernels import (
    absorbed_attention,
    attn_res_mix,
    gated_head_norm,
    linear,
    rms_norm,
    route,
    situ,
)
from k3_kernels.kda import KdaRows
from k3_kernels.norm import sigmoid
from torch import Tensor

from k3d.model.config import LATENT_NORM_EPS, ModelConfig
from k3d.model.kda_state import KdaInputs, KdaRecord, convolve, replay
from k3d.model.lane_state import LaneState, Snapshots, Workspace
from k3d.model.taps import Taps
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


@dataclass(frozen=True)
class Span:
    """A lane's rows in a pass: the tokens at lane.position, lane.position + 1, ...

    `ahead`: some of the rows may be taken back. Otherwise they are a chunk of a prompt, committed
    whole; a pass holds one chunk at most. For the snapshots see LaneState.begin.
    """

    lane: LaneState
    tokens: Sequence[int]
    ahead: bool = False
    snapshot_every: int = 0
    snapshot_until: int | None = None


@dataclass(frozen=True)
class PassResult:
    """logits f64 [wanted rows, vocab]; taps [rows, taps * hidden] in the model's dtype, for the
    layers asked for."""

    logits: Tensor
    taps: Tensor | None


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
        self._workspace = Workspace(config, dtype)
        self._kda_index = {layer: index for index, layer in enumerate(config.kda_layers)}

    def forward(
        self,
        spans: Sequence[Span],
        experts: RoutedExperts,
        wanted: slice | Tensor,
        taps: Taps | None = None,
    ) -> PassResult:
        """One pass over the rows of `spans`, one span a lane; logits of the `wanted` rows."""
        config, weights = self.config, self.weights
        assert sum(not span.ahead for span in spans) <= 1, "one chunk a pass"
        tokens = torch.tensor([token for span in spans for token in span.tokens])
        for span in spans:
            work = None if span.ahead else self._workspace
            span.lane.begin(len(span.tokens), work, span.snapshot_every, span.snapshot_until)
        counts = [len(span.tokens) for span in spans]
        lanes = [span.lane for span in spans]
        raw = taps.layers if taps and taps.stream == "raw_prefix" else ()
        mixes = taps.layers if taps and taps.stream == "materialized" else ()
        tapped: list[Tensor] = []

        sources = self._sources[: tokens.shape[0]]
        sources[:, 0] = weights.embed[tokens].to(self.dtype)
        live = 0
        for index, layer in enumerate(weights.layers):
            mixed = self._mix(sources[:, : live + 1], layer.attn_query) if live else sources[:, 0]
            if index - 1 in mixes:
                tapped.append(mixed)
            x = rms_norm(mixed, layer.input_norm, config.rms_norm_eps)
            attended = self._attention(index, layer.attention, x, lanes, counts)
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
            if index in raw:
                tapped.append(sources[:, live].clone())
        if config.layers - 1 in mixes:
            tapped.append(self._mix(sources[:, : live + 1], weights.output_query))
        mixed = self._mix(sources[wanted, : live + 1], weights.output_query)
        logits = linear(rms_norm(mixed, weights.norm, config.rms_norm_eps), weights.head)
        return PassResult(logits, torch.cat(tapped, -1) if tapped else None)

    def commit(self, span: Span, rows: int) -> Snapshots:
        """Count the first `rows` rows of a span of the last pass in; see LaneState.commit."""
        return span.lane.commit(rows, self._replay)

    def _replay(self, index: int, state: KdaRows, conv: Tensor, record: KdaRecord) -> None:
        weights = self.weights.layers[self.config.kda_layers[index]].attention
        assert isinstance(weights, KdaWeights)
        replay(state, conv, record, weights, self.config)

    def _mix(self, sources: Tensor, query: Tensor) -> Tensor:
        return attn_res_mix(sources, query, self.config.rms_norm_eps)

    def _attention(
        self,
        index: int,
        weights: KdaWeights | MlaWeights,
        x: Tensor,
        lanes: list[LaneState],
        counts: list[int],
    ) -> Tensor:
        if isinstance(weights, MlaWeights):
            return self._mla(index, weights, x, lanes, counts)
        return self._kda(self._kda_index[index], weights, x, lanes, counts)

    def _kda(
        self, index: int, weights: KdaWeights, x: Tensor, lanes: list[LaneState], counts: list[int]
    ) -> Tensor:
        config = self.config
        rows, heads, dim = x.shape[0], config.kda_heads, config.kda_head_dim
        channels = heads * dim
        projected = linear(x, weights.in_proj).to(self.dtype)
        qkv, gate, low_rank, beta = projected.split([3 * channels, channels, dim, heads], dim=-1)
        record = KdaRecord(qkv, low_rank, beta)
        mixed = convolve([lane.kda.conv[index] for lane in lanes], qkv, counts, weights)
        inputs = KdaInputs.of(record, mixed, weights, config)
        outputs = []
        start = 0
        for lane, count in zip(lanes, counts, strict=True):
            part = slice(start, start + count)
            outputs.append(lane.run_kda(index, inputs.cut(part), record.cut(part)))
            start = part.stop
        normed = gated_head_norm(
            torch.cat(outputs).to(self.dtype),
            weights.o_norm,
            gate.reshape(rows, heads, dim),
            config.rms_norm_eps,
        )
        return linear(normed.reshape(rows, channels), weights.o_proj).to(self.dtype)

    def _mla(
        self, index: int, weights: MlaWeights, x: Tensor, lanes: list[LaneState], counts: list[int]
    ) -> Tensor:
        config = self.config
        rows, heads, rank = x.shape[0], config.heads, config.kv_lora_rank
        projected = linear(x, weights.in_proj).to(self.dtype)
        low_rank, kv, gate = projected.split(
            [config.q_lora_rank, rank + config.rope_dim, heads * config.v_dim], dim=-1
        )
        latent = rms_norm(kv[:, :rank], weights.kv_a_norm, LATENT_NORM_EPS)
        kept = torch.cat((latent, kv[:, rank:]), dim=-1)
        low_rank = rms_norm(low_rank, weights.q_a_norm, LATENT_NORM_EPS)
        query = linear(low_rank, weights.q_b).to(self.dtype).view(rows, heads, -1).transpose(0, 1)
        nope, shared = query.split([config.nope_dim, config.rope_dim], dim=-1)
        absorbed = torch.cat((linear(nope, weights.key_up), shared.double()), dim=-1)
        contexts = []
        start = 0
        for lane, count in zip(lanes, counts, strict=True):
            part = slice(start, start + count)
            lane.write_latents(index, kept[part])
            contexts.append(
                absorbed_attention(
                    absorbed[:, part],
                    lane.latents(index),
                    torch.arange(lane.position, lane.position + count),
                    rank,
                    (config.nope_dim + config.rope_dim) ** -0.5,
                )
            )
            start = part.stop
        values = linear(torch.cat(contexts, dim=1), weights.value_up).to(self.dtype)
        values = values.transpose(0, 1).reshape(rows, -1).double()  # [heads, rows, v] ->
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
