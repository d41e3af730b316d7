"""The target as its drafter sees it: tapped rows, and decoding one token a step for many rows.

A tap of layer i is the materialized stream: the AttnRes mix that the next layer's attention reads
before its norm, or the output mix behind the last layer. `Decoder` keeps the state of thousands of
rows (KDA states and conv windows, MLA latents) and gives what `features` gives for whole rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from banks.recipe.attention import KDA, LATENT_NORM_EPS, MLA
from banks.recipe.config import K3Config
from banks.recipe.kda import kda_output, unit_length
from banks.recipe.model import K3, Experts, Layer
from banks.recipe.pieces import Linear, mix, rms

Attend = Callable[[int, Tensor], Tensor]


def freeze(model: K3) -> K3:
    """The same model without gradients, its matrices kept in the compute dtype."""
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, Linear) and module.weight.shape[0] > 1:
            module.weight.data = module.weight.data.to(model.dtype)
        elif isinstance(module, Experts):
            for matrix in (module.w1, module.w2, module.w3):
                matrix.data = matrix.data.to(model.dtype)
    return model


def layers_of(model: K3) -> list[Layer]:
    """The layers, typed."""
    return [cast(Layer, layer) for layer in model.model.layers]


def tapped_rows(
    model: K3, ids: Tensor, taps: tuple[int, ...], attend: Attend
) -> tuple[Tensor, Tensor]:
    """Run rows ids [n] with `attend(layer, normalised rows)` as attention.

    Gives the taps of 0-based layers side by side [n, len(taps) * hidden] and the final normalised
    rows [n, hidden], both in the compute dtype.
    """
    body, c = model.model, model.c
    r = body.embed_tokens.weight.index_select(0, ids).to(model.dtype)
    bank: list[Tensor] = []
    tapped: list[Tensor] = []
    for number, layer in enumerate(layers_of(model)):
        h = r
        if bank:
            norm, proj = layer.self_attention_res_norm.weight, layer.self_attention_res_proj.weight
            h = mix([*bank, r], norm, proj, c.eps)
        if number - 1 in taps:
            tapped.append(h)
        attended = attend(number, rms(h, layer.input_layernorm.weight, c.eps))
        if layer.opens:
            bank, r = [*bank, r], attended
        else:
            r = r + attended
        h = mix([*bank, r], layer.mlp_res_norm.weight, layer.mlp_res_proj.weight, c.eps)
        forward = layer.mlp if hasattr(layer, "mlp") else layer.block_sparse_moe
        r = r + forward(rms(h, layer.post_attention_layernorm.weight, c.eps))
    norm, proj = body.output_attn_res_norm.weight, body.output_attn_res_proj.weight
    last = mix([*bank, r], norm, proj, c.eps)
    if c.layers - 1 in taps:
        tapped.append(last)
    return torch.cat(tapped, -1), rms(last, body.norm.weight, c.eps)


@torch.no_grad()
def features(model: K3, ids: Tensor, taps: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Taps [rows, tokens, len(taps) * hidden] and final rows [rows, tokens, hidden] of whole rows.

    On a GPU tokens must be a multiple of 16.
    """
    tokens = ids.shape[1]
    layers = layers_of(model)

    def attend(number: int, x: Tensor) -> Tensor:
        return layers[number].self_attn(x, tokens)

    tapped, last = tapped_rows(model, ids.flatten(), taps, attend)
    return tapped.unflatten(0, ids.shape), last.unflatten(0, ids.shape)


def delta_token(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor
) -> Tensor:
    """One token of the delta rule; changes state fp32 [rows, heads, dim, dim] in place.

    q (scaled), k, v and log_decay fp32 [rows, heads, dim], beta [rows, heads]; output like q.
    """
    if state.is_cuda:
        from banks.recipe.drafter_kernel import delta_token as kernel

        return kernel(q, k, v, log_decay, beta, state)
    state.mul_(log_decay.exp()[..., None])
    delta = beta[..., None] * (v - (k[:, :, None] @ state)[:, :, 0])
    state.addcmul_(k[..., None], delta[:, :, None])
    return (q[:, :, None] @ state)[:, :, 0]


class KdaState:
    """One KDA layer's state of every row, moved on one token a call."""

    def __init__(self, layer: KDA, c: K3Config, rows: int, dtype: torch.dtype) -> None:
        device = layer.A_log.device
        inner = c.kda_heads * c.kda_dim
        fused = (layer.q_proj, layer.k_proj, layer.v_proj, layer.g_proj)
        fused = (*fused, layer.f_a_proj, layer.b_proj)
        self.layer, self.c = layer, c
        self.widths = [3 * inner, inner, c.kda_dim, c.kda_heads]
        self.weight = torch.cat([matrix.value() for matrix in fused]).to(dtype)
        convs = (layer.q_conv1d, layer.k_conv1d, layer.v_conv1d)
        self.taps = torch.cat([conv.weight for conv in convs])[:, 0].T.float()  # [taps, channels]
        self.window = torch.zeros(rows, c.conv_taps - 1, 3 * inner, dtype=dtype, device=device)
        shape = (rows, c.kda_heads, c.kda_dim, c.kda_dim)
        self.state = torch.zeros(shape, dtype=torch.float32, device=device)

    def step(self, x: Tensor) -> Tensor:
        """Attention output [rows, hidden] of the next token's normalised rows x."""
        c, layer = self.c, self.layer
        qkv, gate, low, beta = functional.linear(x, self.weight).split(self.widths, -1)
        samples = torch.cat([self.window, qkv[:, None]], 1)
        self.window = samples[:, 1:]
        mixed = functional.silu((samples.float() * self.taps).sum(1)).to(x.dtype)
        q, k, v = mixed.unflatten(-1, (3, c.kda_heads, c.kda_dim)).unbind(1)
        steep = layer.A_log[: c.kda_heads].float().exp()[:, None]
        z = layer.f_b_proj(low).float() + layer.dt_bias
        log_decay = c.gate_lower_bound * torch.sigmoid(steep * z.unflatten(-1, (c.kda_heads, -1)))
        q = unit_length(q).to(x.dtype).float() * c.kda_dim**-0.5
        k = unit_length(k).to(x.dtype).float()
        beta = torch.sigmoid(beta.float())
        out = delta_token(q, k, v.float(), log_decay, beta, self.state).to(x.dtype)
        return layer.o_proj(kda_output(out, gate, layer.o_norm.weight, c.eps))


class MlaState:
    """One MLA layer's latent rows of every row; the absorbed form of the attention."""

    def __init__(self, layer: MLA, c: K3Config, rows: int, limit: int, dtype: torch.dtype) -> None:
        self.layer, self.c, self.length = layer, c, 0
        up = layer.kv_b_proj.value().to(dtype).unflatten(0, (c.heads, c.nope + c.v_dim))
        self.key_up, self.value_up = up[:, : c.nope], up[:, c.nope :].transpose(1, 2)
        shape = (rows, limit, c.kv_rank + c.rope)
        self.latents = torch.zeros(shape, dtype=dtype, device=up.device)

    def step(self, x: Tensor) -> Tensor:
        """Attention output [rows, hidden] of the next token's normalised rows x."""
        c, layer = self.c, self.layer
        latent_q = rms(layer.q_a_proj(x), layer.q_a_layernorm.weight, LATENT_NORM_EPS)
        q = layer.q_b_proj(latent_q).unflatten(-1, (c.heads, c.nope + c.rope))
        latent, shared = layer.kv_a_proj_with_mqa(x).split([c.kv_rank, c.rope], -1)
        latent = rms(latent, layer.kv_a_layernorm.weight, LATENT_NORM_EPS)
        self.latents[:, self.length] = torch.cat([latent, shared], -1)
        self.length += 1
        seen = self.latents[:, : self.length]
        absorbed = (q[..., : c.nope].transpose(0, 1) @ self.key_up).transpose(0, 1)
        query = torch.cat([absorbed, q[..., c.nope :]], -1)
        scores = (query @ seen.transpose(1, 2)).float() * (c.nope + c.rope) ** -0.5
        context = torch.softmax(scores, -1).to(x.dtype) @ seen[..., : c.kv_rank]
        values = (context.transpose(0, 1) @ self.value_up).transpose(0, 1).flatten(1)
        return layer.o_proj(values * torch.sigmoid(layer.g_proj(x)))


class Decoder:
    """Rows of a frozen target decoded together, one token of every row a step."""

    def __init__(self, model: K3, rows: int, limit: int, taps: tuple[int, ...]) -> None:
        """Room for `rows` rows of at most `limit` tokens."""
        self.model, self.taps = model, taps
        self.states = [
            MlaState(layer.self_attn, model.c, rows, limit, model.dtype)
            if isinstance(layer.self_attn, MLA)
            else KdaState(layer.self_attn, model.c, rows, model.dtype)
            for layer in layers_of(model)
        ]

    @torch.no_grad()
    def step(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Append ids [rows]; taps [rows, len(taps) * hidden] and final rows [rows, hidden]."""
        return tapped_rows(self.model, ids, self.taps, lambda i, x: self.states[i].step(x))
