"""Kimi delta attention: the recurrence of one layer over whole rows, with gradients.

Inputs of `delta_rule` are [rows, tokens, heads, dim]: `q`, `k` (normalised; q not yet scaled) and
`v` in the compute dtype, `log_decay` in fp32 and in (-5, 0); `beta` is fp32 [rows, tokens, heads].
Every row starts from a zero state. The result has q's dtype and shape.
"""

from __future__ import annotations

import torch
from torch import Tensor


def delta_rule_reference(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor
) -> Tensor:
    """Token-by-token recurrence in plain torch (fp32 state), the definition of the layer."""
    q32, k32, v32 = q.float() * q.shape[-1] ** -0.5, k.float(), v.float()
    decay = log_decay.exp()
    state = q32.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    out = []
    for t in range(q.shape[1]):
        state = state * decay[:, t, :, :, None]
        predicted = torch.einsum("bhkv,bhk->bhv", state, k32[:, t])
        delta = beta[:, t, :, None] * (v32[:, t] - predicted)
        state = state + k32[:, t, :, :, None] * delta[:, :, None, :]
        out.append(torch.einsum("bhkv,bhk->bhv", state, q32[:, t]))
    return torch.stack(out, 1).to(q.dtype)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """The recurrence by the Triton kernel on a GPU, else by the reference."""
    if q.is_cuda:
        from banks.recipe.kda_kernel import DeltaRule

        return DeltaRule.apply(q, k, v, log_decay, beta)
    return delta_rule_reference(q, k, v, log_decay, beta)


def causal_conv(x: Tensor, taps: Tensor, tokens: int) -> Tensor:
    """Depthwise causal convolution of rows of `tokens` positions laid end to end.

    x is [rows*tokens, channels], taps [channels, taps]; the last tap multiplies the newest sample.
    """
    count = taps.shape[1]
    position = torch.arange(x.shape[0], device=x.device)[:, None] % tokens
    out = x * taps[:, -1]
    for back in range(1, count):
        shifted = torch.nn.functional.pad(x, (0, 0, back, 0))[: x.shape[0]]
        out = out + torch.where(position >= back, shifted, 0.0) * taps[:, count - 1 - back]
    return out


def unit_length(x: Tensor) -> Tensor:
    """x / sqrt(sum x^2 + 1e-6) over the last axis, in fp32."""
    x32 = x.float()
    return x32 * torch.rsqrt(x32.square().sum(-1, keepdim=True) + 1e-6)


def kda_inputs(
    qkv: Tensor, taps: Tensor, z: Tensor, a_log: Tensor, dt_bias: Tensor, lower_bound: float,
    tokens: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """q, k, v (compute dtype) and log decay (fp32) from the projections of a layer.

    qkv is [rows*tokens, 3*heads*dim], taps [3*heads*dim, 4], z [rows*tokens, heads*dim],
    a_log [heads], dt_bias [heads*dim]; the results are [rows*tokens, heads, dim].
    """
    heads = a_log.shape[0]
    mixed = torch.nn.functional.silu(causal_conv(qkv.float(), taps, tokens)).to(qkv.dtype)
    q, k, v = mixed.unflatten(-1, (3, heads, -1)).unbind(1)
    steep = a_log.exp()[:, None]
    gate = steep * (z.float() + dt_bias).unflatten(-1, (heads, -1))
    return (
        unit_length(q).to(qkv.dtype),
        unit_length(k).to(qkv.dtype),
        v.contiguous(),
        lower_bound * torch.sigmoid(gate),
    )


def kda_output(o: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Per-head norm, weight, sigmoid gate in fp32; o [.., heads, dim], gate [.., heads*dim]."""
    o32 = o.float()
    normed = o32 * torch.rsqrt(o32.square().mean(-1, keepdim=True) + eps) * weight
    return (normed.flatten(-2) * torch.sigmoid(gate.float())).to(o.dtype)
