"""Norms of Kimi-K3. Sums run in float64 over one row; their order depends on the width alone."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS(x) rounded to x's dtype, then times `weight`, rounded again; x [..., width].

    The rounding before the weight is the released model's own (KimiRMSNorm).
    """
    wide = x.double()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed.to(x.dtype).double() * weight).to(x.dtype)


def l2_norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(sum(x^2) + eps) over the last axis; the epsilon is added to the *sum*. f64 out."""
    wide = x.double()
    return wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps)


def sigmoid(x: Tensor) -> Tensor:
    """Logistic function written over exp: torch.sigmoid rounds differently at vector tails."""
    return torch.reciprocal(torch.exp(-x) + 1.0)


def gated_head_norm(o: Tensor, weight: Tensor, gate: Tensor, eps: float) -> Tensor:
    """Per head: o / rms(o) * weight * sigmoid(gate), rounded once.

    o, gate [rows, heads, dim]; weight [dim] shared by all heads; returns o's dtype.
    """
    wide = o.double()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed * weight * sigmoid(gate.double())).to(o.dtype)
