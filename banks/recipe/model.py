"""Kimi-K3 in plain autograd torch, for training: whole rows in, logits out, no caches.

Parameter names are the release's names without `language_model.`, with the experts of a layer
stacked into `experts.{w1,w2,w3}`. The compute dtype is that of `K3.dtype`; parameters are fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from banks.recipe.attention import KDA, MLA
from banks.recipe.config import K3Config
from banks.recipe.experts import plan_grid, route, routed_experts
from banks.recipe.pieces import Linear, Norm, Pieces
from banks.recipe.quantise import global_scale, rounded_nvfp4


class FeedForward(nn.Module):
    """down(situ(gate x, up x)): the dense layer and the shared experts."""

    def __init__(self, c: K3Config, width: int, pieces: Pieces) -> None:
        super().__init__()
        self.c, self.pieces = c, pieces
        self.gate_proj = Linear(c.hidden, width)
        self.up_proj = Linear(c.hidden, width)
        self.down_proj = Linear(width, c.hidden, gain=0.5)

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.cat([self.gate_proj.weight, self.up_proj.weight]).to(x.dtype)
        gate, up = functional.linear(x, weight).chunk(2, -1)
        return self.down_proj(self.pieces.situ(gate, up, self.c.gate_beta, self.c.up_beta))


class Router(nn.Module):
    """Router matrix and the correction bias, which only chooses."""

    e_score_correction_bias: Tensor

    def __init__(self, c: K3Config) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(c.experts, c.hidden) * c.hidden**-0.5)
        self.register_buffer("e_score_correction_bias", torch.zeros(c.experts))


class Experts(nn.Module):
    """Stacked expert matrices of a layer."""

    def __init__(self, c: K3Config) -> None:
        super().__init__()
        up, down = (c.experts, c.expert_width, c.latent), (c.experts, c.latent, c.expert_width)
        self.w1 = nn.Parameter(torch.randn(up) * c.latent**-0.5)
        self.w2 = nn.Parameter(torch.randn(down) * c.expert_width**-0.5)
        self.w3 = nn.Parameter(torch.randn(up) * c.latent**-0.5)
        self.rounding = False

    def values(self) -> tuple[Tensor, Tensor, Tensor]:
        """w1, w2, w3, rounded to NVFP4 when asked."""
        if not self.rounding:
            return self.w1, self.w2, self.w3
        pair = global_scale(self.w1.detach(), self.w3.detach())
        down = rounded_nvfp4(self.w2, global_scale(self.w2.detach()))
        return rounded_nvfp4(self.w1, pair), down, rounded_nvfp4(self.w3, pair)


class SparseMoE(nn.Module):
    """Latent mixture of experts; keeps the last pass's choices and load for the balance."""

    def __init__(self, c: K3Config, pieces: Pieces) -> None:
        super().__init__()
        self.c, self.pieces = c, pieces
        self.gate = Router(c)
        self.routed_expert_down_proj = Linear(c.hidden, c.latent)
        self.routed_expert_up_proj = Linear(c.latent, c.hidden, gain=0.5)
        self.routed_expert_norm = Norm(c.latent)
        self.shared_experts = FeedForward(c, c.shared * c.expert_width, pieces)
        self.experts = Experts(c)
        self.load: Tensor | None = None
        self.chosen: Tensor | None = None

    def activation(self, gate: Tensor, up: Tensor) -> Tensor:
        return self.pieces.situ(gate, up, self.c.gate_beta, self.c.up_beta)

    def forward(self, x: Tensor) -> Tensor:
        c = self.c
        bias = self.gate.e_score_correction_bias
        chosen, weights = route(x, self.gate.weight, bias, c.top_k, c.scaling)
        grid = plan_grid(chosen, c.experts)
        self.load, self.chosen = grid.load, chosen
        latent = self.routed_expert_down_proj(x)
        routed = routed_experts(latent, weights, grid, *self.experts.values(), self.activation)
        routed = self.pieces.rms(routed, self.routed_expert_norm.weight, c.eps)
        return self.routed_expert_up_proj(routed) + self.shared_experts(x)


class Layer(nn.Module):
    """One decoder layer over the AttnRes bank."""

    def __init__(self, c: K3Config, number: int, pieces: Pieces) -> None:
        super().__init__()
        self.c, self.pieces = c, pieces
        self.opens = number % c.block == 0
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden), Norm(c.hidden)
        self.self_attention_res_norm, self.mlp_res_norm = Norm(c.hidden), Norm(c.hidden)
        self.self_attention_res_proj = Linear(c.hidden, 1, gain=0.0)
        self.mlp_res_proj = Linear(c.hidden, 1, gain=0.0)
        self.self_attn = MLA(c, pieces) if number in c.mla_layers else KDA(c, pieces)
        if number < c.dense_layers:
            self.mlp = FeedForward(c, c.dense_width, pieces)
        else:
            self.block_sparse_moe = SparseMoE(c, pieces)

    def forward(self, bank: list[Tensor], r: Tensor, tokens: int) -> tuple[list[Tensor], Tensor]:
        c, p = self.c, self.pieces
        h = r
        if bank:
            norm, proj = self.self_attention_res_norm.weight, self.self_attention_res_proj.weight
            h = p.mix([*bank, r], norm, proj, c.eps)
        attended = self.self_attn(p.rms(h, self.input_layernorm.weight, c.eps), tokens)
        if self.opens:
            bank, r = [*bank, r], attended
        else:
            r = r + attended
        h = p.mix([*bank, r], self.mlp_res_norm.weight, self.mlp_res_proj.weight, c.eps)
        forward = self.mlp if hasattr(self, "mlp") else self.block_sparse_moe
        return bank, r + forward(p.rms(h, self.post_attention_layernorm.weight, c.eps))


class Body(nn.Module):
    """Embedding, layers and the last mix; named `model` in the release."""

    def __init__(self, c: K3Config, pieces: Pieces) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        self.layers = nn.ModuleList(Layer(c, number, pieces) for number in range(c.layers))
        self.norm = Norm(c.hidden)
        self.output_attn_res_norm = Norm(c.hidden)
        self.output_attn_res_proj = Linear(c.hidden, 1, gain=0.0)


class K3(nn.Module):
    """The text model: ids [rows, tokens] -> logits [rows, tokens, vocab] in the compute dtype."""

    def __init__(
        self, c: K3Config, dtype: torch.dtype = torch.float32, pieces: Pieces | None = None
    ) -> None:
        super().__init__()
        self.c, self.dtype = c, dtype
        self.pieces = pieces or Pieces()
        self.model = Body(c, self.pieces)
        self.lm_head = Linear(c.hidden, c.vocab, gain=0.3)

    def hidden(self, ids: Tensor) -> Tensor:
        """Final normalised rows [rows * tokens, hidden]."""
        body, c = self.model, self.c
        r = body.embed_tokens.weight.index_select(0, ids.flatten()).to(self.dtype)
        bank: list[Tensor] = []
        for layer in body.layers:
            bank, r = layer(bank, r, ids.shape[1])
        norm, proj = body.output_attn_res_norm.weight, body.output_attn_res_proj.weight
        last = self.pieces.mix([*bank, r], norm, proj, c.eps)
        return self.pieces.rms(last, body.norm.weight, c.eps)

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(self.hidden(ids)).unflatten(0, ids.shape)

    def moe(self) -> list[SparseMoE]:
        """The mixture modules in layer order."""
        return [module for module in self.modules() if isinstance(module, SparseMoE)]

    def set_rounding(self, on: bool) -> None:
        """Imitate the release's number formats in the forward pass."""
        for module in self.modules():
            if isinstance(module, Linear | Experts):
                module.rounding = on
