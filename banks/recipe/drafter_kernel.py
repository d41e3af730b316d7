"""Triton kernels of the drafter's training: the loss of a row of logits with its gradient in place,
and one token of the delta rule for many rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _row(
    z, t, y, weight, ce, l1, vocab, ce_share, l1_share, V: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, V)
    inside = column < vocab
    at = row * vocab + column
    zr = tl.load(z + at, mask=inside, other=float("-inf")).to(tl.float32)
    tr = tl.load(t + at, mask=inside, other=float("-inf")).to(tl.float32)
    zr = zr - tl.max(zr, 0)
    tr = tr - tl.max(tr, 0)
    eq = tl.exp(zr)
    total = tl.sum(eq, 0)
    q = eq / total
    ep = tl.exp(tr)
    p = ep / tl.sum(ep, 0)
    d = q - p
    sign = tl.where(d > 0, 1.0, tl.where(d < 0, -1.0, 0.0))
    truth = column == tl.load(y + row)
    tl.store(ce + row, tl.log(total) - tl.sum(tl.where(truth, zr, 0.0), 0))
    tl.store(l1 + row, tl.sum(tl.abs(d), 0))
    grad = l1_share * q * (sign - tl.sum(q * sign, 0)) + ce_share * (q - tl.where(truth, 1.0, 0.0))
    grad = grad * tl.load(weight + row)
    tl.store(z + at, grad.to(z.dtype.element_ty), mask=inside)


def row_losses(
    z: Tensor, t: Tensor, y: Tensor, weight: Tensor, ce_share: float, l1_share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Arguments and results of `rows_reference`; z holds the gradient afterwards."""
    rows, vocab = z.shape
    ce, l1 = torch.empty(2, rows, device=z.device).unbind(0)
    _row[(rows,)](
        z, t, y, weight, ce, l1, vocab, ce_share, l1_share,
        V=triton.next_power_of_2(vocab),
        num_warps=8,  # pyright: ignore[reportCallIssue]
    )  # fmt: skip
    return z, ce, l1


@triton.jit
def _token(q, k, v, g, beta, state, o, D: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, D)
    tile = state + pid * D * D + lane[:, None] * D + lane[None, :]
    kt = tl.load(k + pid * D + lane)
    s = tl.load(tile) * tl.exp(tl.load(g + pid * D + lane))[:, None]
    delta = tl.load(beta + pid) * (tl.load(v + pid * D + lane) - tl.sum(s * kt[:, None], 0))
    s = s + kt[:, None] * delta[None, :]
    tl.store(tile, s)
    tl.store(o + pid * D + lane, tl.sum(s * tl.load(q + pid * D + lane)[:, None], 0))


def delta_token(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor
) -> Tensor:
    """Arguments and result of `banks.recipe.drafter_target.delta_token`."""
    q, k, v, log_decay, beta = (t.float().contiguous() for t in (q, k, v, log_decay, beta))
    out = torch.empty_like(q)
    _token[(state.shape[0] * state.shape[1],)](
        q, k, v, log_decay, beta, state, out,
        D=q.shape[-1],
        num_warps=1,  # pyright: ignore[reportCallIssue]
    )  # fmt: skip
    return out
