"""AttnRes: the residual stream as a softmax mixture over the bank of block inputs."""

from __future__ import annotations

import torch
from torch import Tensor


def attn_res_mix(sources: Tensor, query: Tensor, eps: float) -> Tensor:
    """Mix sources [rows, n, hidden] (bank as created, live residual last) -> [rows, hidden].

    score_i = rsqrt(mean(v_i^2) + eps) * (v_i . query), out = sum_i softmax(score)_i v_i over the
    raw sources; query = norm.weight * proj.weight in f64 [hidden]. f64 inside, rounded once.
    """
    wide = sources.double()
    inverse_rms = torch.rsqrt(wide.square().mean(-1) + eps)
    scores = (wide * query).sum(-1) * inverse_rms  # [rows, n]
    shares = torch.exp(scores - scores.amax(-1, keepdim=True))
    mixed = (wide * shares.unsqueeze(-1)).sum(1)
    return (mixed / shares.sum(-1, keepdim=True)).to(sources.dtype)
