"""Attention of a draft layer: block rows over context rows and over each other.

Both kinds turn a hidden row into a query and a *row*, the same thing the engine keeps of a
committed position, so context and block rows are read by one routine and the context is never
copied. Everything is float32 and differentiable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from k3d.model.drafter.config import DrafterConfig, GqaShape, MlaShape
from k3d.model.drafter.rope import Turn


@dataclass(frozen=True)
class GqaAttention:
    """qkv [(heads + 2 kv_heads) * dim, hidden]: query, key, value rows stacked."""

    shape: GqaShape
    eps: float
    scale: float
    qkv: Tensor
    q_norm: Tensor
    k_norm: Tensor
    o_proj: Tensor

    @classmethod
    def from_tensors(
        cls, config: DrafterConfig, tensors: Mapping[str, Tensor], prefix: str
    ) -> GqaAttention:
        shape = config.attention
        assert isinstance(shape, GqaShape)
        qkv = [tensors[f"{prefix}{name}_proj.weight"] for name in "qkv"]
        return cls(
            shape,
            config.rms_norm_eps,
            shape.head_dim**-0.5 * config.rope.score_gain,
            torch.cat(qkv),
            tensors[f"{prefix}q_norm.weight"],
            tensors[f"{prefix}k_norm.weight"],
            tensors[f"{prefix}o_proj.weight"],
        )

    @property
    def row_proj(self) -> Tensor:
        """The part of the projections that makes context rows: [row_width, hidden]."""
        return self.qkv[self.shape.heads * self.shape.head_dim :]

    def rows(self, raw: Tensor, turn: Turn) -> Tensor:
        """Projected [rows, row_width] -> context rows: keys normed and rotated."""
        shape = self.shape
        keys, values = raw.chunk(2, dim=-1)
        keys = keys.reshape(-1, shape.kv_heads, shape.head_dim)
        keys = turn.apply(rms_norm(keys, (shape.head_dim,), self.k_norm, self.eps))
        return torch.cat((keys.flatten(1), values), dim=-1)

    def project(self, x: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
        """x [rows, hidden] -> scaled query [rows, heads, dim] and rows [rows, row_width]."""
        shape = self.shape
        query, raw = linear(x, self.qkv).split(
            [shape.heads * shape.head_dim, shape.row_width], dim=-1
        )
        query = query.reshape(-1, shape.heads, shape.head_dim)
        query = turn.apply(rms_norm(query, (shape.head_dim,), self.q_norm, self.eps))
        return query * self.scale, self.rows(raw, turn)

    def keys(self, rows: Tensor) -> Tensor:
        """View rows [..., row_width] as keys [..., kv_heads, dim]."""
        return rows.chunk(2, dim=-1)[0].unflatten(-1, (self.shape.kv_heads, -1))

    def values(self, rows: Tensor) -> Tensor:
        return rows.chunk(2, dim=-1)[1].unflatten(-1, (self.shape.kv_heads, -1))

    def output(self, attended: Tensor) -> Tensor:
        """[rows, heads, dim] -> [rows, hidden]."""
        return linear(attended.flatten(1), self.o_proj)


@dataclass(frozen=True)
class MlaAttention:
    """in_proj [q_rank + row_width, width]: q_a, then kv_a rows; key_up [heads, nope, rank] and
    value_up [heads, rank, v] are kv_b's two parts. Queries are taken into the latent space, where
    all heads share one key, the row itself."""

    shape: MlaShape
    eps: float
    scale: float
    in_proj: Tensor
    q_a_norm: Tensor
    q_b: Tensor
    kv_a_norm: Tensor
    key_up: Tensor
    value_up: Tensor
    o_proj: Tensor

    @classmethod
    def from_tensors(
        cls, config: DrafterConfig, tensors: Mapping[str, Tensor], prefix: str
    ) -> MlaAttention:
        shape = config.attention
        assert isinstance(shape, MlaShape)
        kv_b = tensors[f"{prefix}kv_b_proj.weight"].view(shape.heads, -1, shape.kv_lora_rank)
        key_up, value_up = kv_b.split([shape.nope_dim, shape.v_dim], dim=1)
        return cls(
            shape,
            config.rms_norm_eps,
            (shape.nope_dim + shape.rope_dim) ** -0.5 * config.rope.score_gain,
            torch.cat(
                (
                    tensors[f"{prefix}q_a_proj.weight"],
                    tensors[f"{prefix}kv_a_proj_with_mqa.weight"],
                )
            ),
            tensors[f"{prefix}q_a_layernorm.weight"],
            tensors[f"{prefix}q_b_proj.weight"],
            tensors[f"{prefix}kv_a_layernorm.weight"],
            key_up.contiguous(),
            value_up.transpose(1, 2).contiguous(),
            tensors[f"{prefix}o_proj.weight"],
        )

    @property
    def row_proj(self) -> Tensor:
        """The part of the projections that makes context rows: [row_width, width]."""
        return self.in_proj[self.shape.q_lora_rank :]

    def rows(self, raw: Tensor, turn: Turn) -> Tensor:
        """Projected [rows, row_width] -> context rows: latent normed, shared key rotated."""
        latent, shared = raw.split([self.shape.kv_lora_rank, self.shape.rope_dim], dim=-1)
        latent = rms_norm(latent, (self.shape.kv_lora_rank,), self.kv_a_norm, self.eps)
        return torch.cat((latent, turn.apply(shared)), dim=-1)

    def project(self, x: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
        """x [rows, width] -> scaled query [rows, heads, row_width] and rows [rows, row_width]."""
        shape = self.shape
        low_rank, raw = linear(x, self.in_proj).split([shape.q_lora_rank, shape.row_width], dim=-1)
        low_rank = rms_norm(low_rank, (shape.q_lora_rank,), self.q_a_norm, self.eps)
        query = linear(low_rank, self.q_b).view(x.shape[0], shape.heads, -1)
        nope, rope = query.split([shape.nope_dim, shape.rope_dim], dim=-1)
        absorbed = torch.bmm(nope.transpose(0, 1), self.key_up).transpose(0, 1)
        query = torch.cat((absorbed, turn.apply(rope)), dim=-1)
        return query * self.scale, self.rows(raw, turn)

    def keys(self, rows: Tensor) -> Tensor:
        """View rows [..., row_width] as the one key all heads share: [..., 1, row_width]."""
        return rows.unsqueeze(-2)

    def values(self, rows: Tensor) -> Tensor:
        return rows[..., : self.shape.kv_lora_rank].unsqueeze(-2)

    def output(self, attended: Tensor) -> Tensor:
        """[rows, heads, rank] -> [rows, hidden]."""
        values = torch.bmm(attended.transpose(0, 1), self.value_up).transpose(0, 1)
        return linear(values.flatten(1), self.o_proj)


Attention = GqaAttention | MlaAttention


def attention_from_tensors(
    config: DrafterConfig, tensors: Mapping[str, Tensor], prefix: str
) -> Attention:
    """The attention under `prefix`, of the kind the config names."""
    kind = GqaAttention if isinstance(config.attention, GqaShape) else MlaAttention
    return kind.from_tensors(config, tensors, prefix)


def attend(
    attention: Attention,
    query: Tensor,
    context: Tensor,
    block: Tensor,
    *,
    visible: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Rows of blocks that share one context.

    query [blocks, rows, heads, dim], already scaled; context [p, row_width]; block [blocks, rows',
    row_width], the rows a block sees of itself; visible bool [blocks, p] or None for all of the
    context; causal hides the later rows of the block (rows' = rows then). Returns [blocks, rows,
    heads, value dim].
    """
    blocks, rows, heads, dim = query.shape
    keys, values = attention.keys(context), attention.values(context)
    groups = keys.shape[1]
    # Query rows that share a KV head lie side by side: one product a head reads the context once.
    query = query.view(blocks, rows, groups, -1, dim).permute(2, 0, 3, 1, 4)
    query = query.reshape(groups, blocks, -1, dim)
    far = torch.bmm(query.flatten(1, 2), keys.permute(1, 2, 0)).view(*query.shape[:3], -1)
    near = torch.matmul(query, attention.keys(block).permute(2, 0, 3, 1))
    if visible is not None:
        far = far.masked_fill(~visible.unsqueeze(1), float("-inf"))
    if causal:
        later = torch.ones(rows, rows, dtype=torch.bool).triu(1)
        near = near.masked_fill(later.repeat(heads // groups, 1), float("-inf"))
    shares = torch.softmax(torch.cat((far, near), dim=-1), dim=-1)
    far, near = shares.split([far.shape[-1], near.shape[-1]], dim=-1)
    out = torch.bmm(far.flatten(1, 2), values.transpose(0, 1)).view(*query.shape[:3], -1)
    out = out + torch.matmul(near, attention.values(block).permute(2, 0, 1, 3))
    out = out.view(groups, blocks, -1, rows, out.shape[-1]).permute(1, 3, 0, 2, 4)
    return out.reshape(blocks, rows, heads, -1)
