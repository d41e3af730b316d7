"""DSpark drafter in plain autograd torch: a block of drafts from tapped rows of the target.

Parameter names are those of the SpecForge layout. Context rows (taps of positions before the
anchor) are keys and values of every layer; a block is the anchor's embedding and mask embeddings
behind it, row j at position p + j predicting position p + j + 1, and all rows of a block see each
other. Embedding and head are the target's, given from outside and never trained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from banks.recipe.pieces import Linear, Norm, rms

BLOCK = 7
KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class DrafterConfig:
    """Shape of a drafter; `taps` are 0-based target layers, ascending."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    rank: int
    taps: tuple[int, ...]
    mask: int
    eps: float = 1e-5
    theta: float = 10_000.0
    block: int = BLOCK

    def published_json(self) -> dict[str, Any]:
        """`config.json` of the SpecForge layout, without the confidence temperatures."""
        return {
            "architectures": ["DSparkDraftModel"],
            "layout": "specforge",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.width,
            "rms_norm_eps": self.eps,
            "rope_theta": self.theta,
            "rope_scaling": None,
            "vocab_size": self.vocab,
            "block_size": self.block,
            "mask_token_id": self.mask,
            "target_layer_ids": list(self.taps),
            "tap_stream": "materialized",
            "markov_rank": self.rank,
            "causal": False,
        }

    @staticmethod
    def from_json(table: dict[str, Any]) -> DrafterConfig:
        """Read what `published_json` writes; a missing key raises KeyError with its name."""
        return DrafterConfig(
            vocab=table["vocab_size"],
            hidden=table["hidden_size"],
            layers=table["num_hidden_layers"],
            heads=table["num_attention_heads"],
            kv_heads=table["num_key_value_heads"],
            head_dim=table["head_dim"],
            width=table["intermediate_size"],
            rank=table["markov_rank"],
            taps=tuple(table["target_layer_ids"]),
            mask=table["mask_token_id"],
            eps=table["rms_norm_eps"],
            theta=table["rope_theta"],
            block=table["block_size"],
        )


MINI = DrafterConfig(
    vocab=4096, hidden=192, layers=4, heads=6, kv_heads=2, head_dim=32, width=640, rank=64,
    taps=(2, 5, 7, 9, 11), mask=4080,
)  # fmt: skip


class Rotation:
    """cos and sin of rotate-half RoPE, [positions, head_dim] each, fp32."""

    def __init__(self, c: DrafterConfig, positions: int, device: torch.device) -> None:
        pairs = torch.arange(0, c.head_dim, 2, device=device, dtype=torch.float32)
        angle = torch.arange(positions, device=device)[:, None] * c.theta ** (-pairs / c.head_dim)
        angle = torch.cat([angle, angle], -1)
        self.cos, self.sin = angle.cos(), angle.sin()

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate x [.., heads, head_dim] at positions [..]."""
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        cos, sin = self.cos[positions][..., None, :], self.sin[positions][..., None, :]
        return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


def normed(x: Tensor, norm: Norm, eps: float) -> Tensor:
    """RMS norm over the last axis, its arithmetic in fp32."""
    return rms(x, norm.weight, eps)


class DrafterAttention(nn.Module):
    """Grouped-query attention of block rows over context rows and their own block."""

    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.c = c
        self.q_proj = Linear(c.hidden, c.heads * c.head_dim)
        self.k_proj = Linear(c.hidden, c.kv_heads * c.head_dim)
        self.v_proj = Linear(c.hidden, c.kv_heads * c.head_dim)
        self.o_proj = Linear(c.heads * c.head_dim, c.hidden, gain=0.5)
        self.q_norm, self.k_norm = Norm(c.head_dim), Norm(c.head_dim)

    def keys_values(self, x: Tensor, positions: Tensor, turn: Rotation) -> KeysValues:
        """Keys (normed, rotated) and values [.., kv_heads, head_dim] of rows x at positions."""
        shape = (self.c.kv_heads, self.c.head_dim)
        k = normed(self.k_proj(x).unflatten(-1, shape), self.k_norm, self.c.eps)
        return turn(k, positions), self.v_proj(x).unflatten(-1, shape)

    def forward(
        self, x: Tensor, positions: Tensor, context: KeysValues, hidden: Tensor, turn: Rotation
    ) -> Tensor:
        """x [rows, blocks, block, hidden] at positions [rows, blocks, block]; context keys and
        values [rows, tokens, kv_heads, head_dim]; `hidden` bool [rows, blocks, tokens] hides.
        """
        c = self.c
        _, blocks, size, _ = x.shape
        tokens, groups = context[0].shape[1], c.heads // c.kv_heads
        q = normed(self.q_proj(x).unflatten(-1, (c.heads, c.head_dim)), self.q_norm, c.eps)
        q = (turn(q, positions) * c.head_dim**-0.5).unflatten(-2, (c.kv_heads, groups))
        q = q.permute(0, 3, 1, 4, 2, 5)  # [rows, kv_heads, blocks, groups, block, head_dim]
        k, v = self.keys_values(x, positions, turn)
        spare = -size % 8  # tensor cores want aligned rows; a spare key is hidden
        k, v = (functional.pad(part.permute(0, 3, 1, 2, 4), (0, 0, 0, spare)) for part in (k, v))
        past_k, past_v = (part.transpose(1, 2) for part in context)
        past = q.flatten(2, 4) @ past_k.transpose(2, 3)
        past = past.unflatten(2, (blocks, groups * size))
        past = past.masked_fill(hidden[:, None, :, None], float("-inf"))
        own = q.flatten(3, 4) @ k.transpose(3, 4)
        own = own.masked_fill(torch.arange(size + spare, device=x.device) >= size, float("-inf"))
        share = torch.softmax(torch.cat([past, own], -1), -1)
        out = (share[..., :tokens].flatten(2, 3) @ past_v).unflatten(2, (blocks, groups * size))
        out = out + share[..., tokens:] @ v
        out = out.unflatten(3, (groups, size)).permute(0, 2, 4, 1, 3, 5)
        return self.o_proj(out.flatten(3))


class DrafterMlp(nn.Module):
    """down(silu(gate x) * up x)."""

    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(c.hidden, c.width)
        self.up_proj = Linear(c.hidden, c.width)
        self.down_proj = Linear(c.width, c.hidden, gain=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DrafterLayer(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.eps = c.eps
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden), Norm(c.hidden)
        self.self_attn, self.mlp = DrafterAttention(c), DrafterMlp(c)

    def forward(
        self, h: Tensor, positions: Tensor, context: KeysValues, hidden: Tensor, turn: Rotation
    ) -> Tensor:
        x = normed(h, self.input_layernorm, self.eps)
        h = h + self.self_attn(x, positions, context, hidden, turn)
        return h + self.mlp(normed(h, self.post_attention_layernorm, self.eps))


class Table(nn.Module):
    """A [vocab, rank] matrix; its arithmetic is in the loss and in `drafted`."""

    def __init__(self, vocab: int, rank: int, spread: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab, rank) * spread)


class MarkovHead(nn.Module):
    """Bias of a draft by the token before it: markov_w2 markov_w1[token]."""

    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.markov_w1 = Table(c.vocab, c.rank, 1.0)
        self.markov_w2 = Table(c.vocab, c.rank, 0.0)


class ConfidenceHead(nn.Module):
    """Logit of a draft's conditional acceptance from its row and the token before it."""

    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(c.hidden + c.rank, 1)
        nn.init.zeros_(self.proj.weight)

    def forward(self, h: Tensor, before: Tensor) -> Tensor:
        """Logits [..] from h [.., hidden] and the Markov rows [.., rank] of the tokens before."""
        joint = torch.cat([h, before], -1)
        return functional.linear(joint, self.proj.weight.to(h.dtype))[..., 0] + self.proj.bias


class Drafter(nn.Module):
    """The trained part of a drafter; compute in `dtype`, parameters fp32."""

    def __init__(self, c: DrafterConfig, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.c, self.dtype = c, dtype
        self.fc = Linear(len(c.taps) * c.hidden, c.hidden)
        self.hidden_norm, self.norm = Norm(c.hidden), Norm(c.hidden)
        self.layers = nn.ModuleList(DrafterLayer(c) for _ in range(c.layers))
        self.markov_head, self.confidence_head = MarkovHead(c), ConfidenceHead(c)

    def blocks(self, embed: Tensor, ids: Tensor, taps: Tensor, anchors: Tensor) -> Tensor:
        """Final rows [rows, blocks, block, hidden] of one block for each anchor.

        embed [vocab, hidden] is the target's; ids [rows, tokens] and taps [rows, tokens, ..] are
        whole rows of the target; anchors [rows, blocks] are positions in them.
        """
        c, device = self.c, ids.device
        tokens = ids.shape[1]
        turn = Rotation(c, tokens + c.block, device)
        context = normed(self.fc(taps.to(self.dtype)), self.hidden_norm, c.eps)
        hidden = torch.arange(tokens, device=device) >= anchors[..., None]
        positions = anchors[..., None] + torch.arange(c.block, device=device)
        places = torch.arange(tokens, device=device).expand(ids.shape)
        shown = torch.full((*anchors.shape, c.block), c.mask, device=device)
        shown[..., 0] = ids.gather(1, anchors)
        h = embed[shown].to(self.dtype)
        for layer in cast(Iterable[DrafterLayer], self.layers):
            keys_values = layer.self_attn.keys_values(context, places, turn)
            h = layer(h, positions, keys_values, hidden, turn)
        return normed(h, self.norm, c.eps)


@torch.no_grad()
def drafted(
    drafter: Drafter, embed: Tensor, head: Tensor, ids: Tensor, taps: Tensor, anchors: Tensor
) -> tuple[Tensor, Tensor]:
    """Greedy drafts int64 and raw confidence logits fp32, both [rows, blocks, block]."""
    h = drafter.blocks(embed, ids, taps, anchors).float()
    w1, w2 = (
        t.weight.float() for t in (drafter.markov_head.markov_w1, drafter.markov_head.markov_w2)
    )
    token = ids.gather(1, anchors)
    drafts, logits = [], []
    for k in range(drafter.c.block):
        before = w1[token]
        logits.append(drafter.confidence_head(h[:, :, k], before))
        token = (h[:, :, k] @ head.float().T + before @ w2.T).argmax(-1)
        drafts.append(token)
    return torch.stack(drafts, -1), torch.stack(logits, -1)
