"""The two mixers of tokens: Kimi delta attention and gated latent attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from banks.recipe.config import K3Config
from banks.recipe.kda import delta_rule
from banks.recipe.pieces import Linear, Norm, Pieces

LATENT_NORM_EPS = 1e-6  # the two norms inside MLA do not use rms_norm_eps


class Taps(nn.Module):
    """Taps of a depthwise convolution [channels, 1, taps], near the identity at first."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, taps) * 0.2)
        self.weight.data[:, 0, -1] += 1.0


class KDA(nn.Module):
    """Kimi delta attention with full-rank output gate."""

    def __init__(self, c: K3Config, pieces: Pieces) -> None:
        super().__init__()
        self.c, self.pieces = c, pieces
        inner = c.kda_heads * c.kda_dim
        self.q_proj = Linear(c.hidden, inner, fp8=True)
        self.k_proj = Linear(c.hidden, inner, fp8=True)
        self.v_proj = Linear(c.hidden, inner, fp8=True)
        self.g_proj = Linear(c.hidden, inner, fp8=True)
        self.f_a_proj = Linear(c.hidden, c.kda_dim, fp8=True)
        self.f_b_proj = Linear(c.kda_dim, inner, fp8=True, gain=0.3)
        self.b_proj = Linear(c.hidden, c.kda_heads, fp8=True)
        self.o_proj = Linear(inner, c.hidden, fp8=True, gain=0.5)
        self.q_conv1d = Taps(inner, c.conv_taps)
        self.k_conv1d = Taps(inner, c.conv_taps)
        self.v_conv1d = Taps(inner, c.conv_taps)
        self.A_log = nn.Parameter(torch.zeros(c.kda_dim))
        decay = torch.empty(inner).uniform_(-6.9, -0.36).exp()  # natural-log decay a token
        self.dt_bias = nn.Parameter(torch.logit(decay / -c.gate_lower_bound))
        self.o_norm = Norm(c.kda_dim)

    def forward(self, x: Tensor, tokens: int) -> Tensor:
        c = self.c
        inner = c.kda_heads * c.kda_dim
        fused = [self.q_proj, self.k_proj, self.v_proj, self.g_proj, self.f_a_proj, self.b_proj]
        weight = torch.cat([matrix.value() for matrix in fused]).to(x.dtype)
        qkv, gate, low, beta = functional.linear(x, weight).split(
            [3 * inner, inner, c.kda_dim, c.kda_heads], -1
        )
        taps = torch.cat([self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight])[:, 0]
        q, k, v, log_decay = self.pieces.kda_inputs(
            qkv, taps, self.f_b_proj(low), self.A_log[: c.kda_heads], self.dt_bias,
            c.gate_lower_bound, tokens,
        )  # fmt: skip
        parts = (q, k, v, log_decay, torch.sigmoid(beta.float()))
        q, k, v, log_decay, beta = (part.unflatten(0, (-1, tokens)) for part in parts)
        o = delta_rule(q, k, v, log_decay, beta).flatten(0, 1)
        return self.o_proj(self.pieces.kda_output(o, gate, self.o_norm.weight, c.eps))


class MLA(nn.Module):
    """Gated latent attention without positions, expanded form."""

    def __init__(self, c: K3Config, pieces: Pieces) -> None:
        super().__init__()
        self.c, self.pieces = c, pieces
        self.q_a_proj = Linear(c.hidden, c.q_rank, fp8=True)
        self.q_a_layernorm = Norm(c.q_rank)
        self.q_b_proj = Linear(c.q_rank, c.heads * (c.nope + c.rope), fp8=True)
        self.kv_a_proj_with_mqa = Linear(c.hidden, c.kv_rank + c.rope, fp8=True)
        self.kv_a_layernorm = Norm(c.kv_rank)
        self.kv_b_proj = Linear(c.kv_rank, c.heads * (c.nope + c.v_dim), fp8=True)
        self.g_proj = Linear(c.hidden, c.heads * c.v_dim, fp8=True)
        self.o_proj = Linear(c.heads * c.v_dim, c.hidden, fp8=True, gain=0.5)

    def forward(self, x: Tensor, tokens: int) -> Tensor:
        c = self.c
        width = c.nope + c.rope
        latent_q = self.pieces.rms(self.q_a_proj(x), self.q_a_layernorm.weight, LATENT_NORM_EPS)
        q = self.q_b_proj(latent_q).unflatten(-1, (c.heads, width))
        latent, shared = self.kv_a_proj_with_mqa(x).split([c.kv_rank, c.rope], -1)
        latent = self.pieces.rms(latent, self.kv_a_layernorm.weight, LATENT_NORM_EPS)
        expanded = self.kv_b_proj(latent).unflatten(-1, (c.heads, c.nope + c.v_dim))
        key, v = expanded.split([c.nope, c.v_dim], -1)
        k = torch.cat([key, shared[:, None].expand(-1, c.heads, -1)], -1)
        v = functional.pad(v, (0, width - c.v_dim))  # the fused kernels want one head width
        q, k, v = (part.unflatten(0, (-1, tokens)).transpose(1, 2) for part in (q, k, v))
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True)[..., : c.v_dim]
        context = context.transpose(1, 2).flatten(0, 1).flatten(-2)
        return self.o_proj(context * torch.sigmoid(self.g_proj(x)))
