"""The published loss of a DSpark drafter: CE, L1 to the target's distribution, confidence.

A row's logits over the vocabulary are used three times (two softmaxes and the gradient), so on a
GPU one Triton program a row reads them once and leaves the gradient in their place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

CE_SHARE = 0.1
L1_SHARE = 0.9
DECAY = 4.0


def position_weights(block: int, device: torch.device) -> Tensor:
    """exp(-k / 4) for the drafts k = 0, 1, ... of a block."""
    return torch.exp(-torch.arange(block, device=device) / DECAY)


def rows_reference(
    z: Tensor, t: Tensor, y: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of weight * (0.1 CE + 0.9 L1) by z [rows, vocab], and CE and L1 [rows].

    z are the drafter's logits, t the target's, y the true tokens.
    """
    log_q = torch.log_softmax(z.float(), -1)
    q, p = log_q.exp(), torch.softmax(t.float(), -1)
    ce = -log_q.gather(1, y[:, None])[:, 0]
    l1 = (q - p).abs().sum(-1)
    sign = torch.sign(q - p)
    grad = L1_SHARE * q * (sign - (q * sign).sum(-1, keepdim=True)) + CE_SHARE * q
    grad.scatter_add_(1, y[:, None], torch.full_like(grad[:, :1], -CE_SHARE))
    return (grad * weight[:, None]).to(z.dtype), ce, l1


def rows_in_place(z: Tensor, t: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`rows_reference`; on a GPU the gradient takes the place of z."""
    if z.is_cuda:
        from banks.recipe.drafter_kernel import row_losses

        return row_losses(z, t, y, weight, CE_SHARE, L1_SHARE)
    return rows_reference(z, t, y, weight)


class BlockLoss(torch.autograd.Function):
    """sum of weight * (0.1 CE + 0.9 L1), with the CE and L1 of every row beside it.

    h [rows, hidden] are final rows, e [rows, rank] Markov rows of the tokens before; head
    [vocab, hidden], w2 [vocab, rank] and t [rows, vocab] as in `rows_reference`.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, e: Tensor, head: Tensor, w2: Tensor, t: Tensor, y: Tensor,
        weight: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        w2 = w2.to(h.dtype)
        z = functional.linear(torch.cat([h, e], -1), torch.cat([head, w2], 1))
        dz, ce, l1 = rows_in_place(z, t, y, weight)
        ctx.save_for_backward(dz, e, head, w2)
        ctx.mark_non_differentiable(ce, l1)
        return (weight * (CE_SHARE * ce + L1_SHARE * l1)).sum(), ce, l1

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dz, e, head, w2 = ctx.saved_tensors
        scale = grads[0]
        dw2 = (dz.T @ e).float() * scale
        return (
            dz @ head * scale.to(dz.dtype),
            dz @ w2 * scale.to(dz.dtype),
            None,
            dw2,
            None,
            None,
            None,
        )


def drafter_loss(
    h: Tensor, before: Tensor, head: Tensor, w2: Tensor, logits: Tensor, y: Tensor,
    weight: Tensor, confidence: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Loss of flat rows: weights sum to 1 over rows that count, and are 0 elsewhere.

    `confidence` are the confidence logits. Also gives the sum over the vocabulary of
    min(p_draft, p_target), the acceptance that confidence learns, and CE, both [rows].
    """
    total, ce, l1 = BlockLoss.apply(h, before, head, w2, logits, y, weight)
    accepted = 1.0 - 0.5 * l1
    surprise = functional.binary_cross_entropy_with_logits(
        confidence.float(), accepted.clamp(0.0, 1.0), reduction="none"
    )
    return total + (weight * surprise).sum(), accepted, ce
