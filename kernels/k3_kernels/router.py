"""Choosing a row's experts."""

from __future__ import annotations

import torch
from torch import Tensor

from k3_kernels.norm import sigmoid


def route(
    logits: Tensor,
    bias: Tensor,
    top_k: int,
    *,
    renormalize: bool,
    scaling: float,
    groups: int = 1,
    top_groups: int = 1,
) -> tuple[Tensor, Tensor]:
    """logits f32 or f64 [rows, experts], bias f32 [experts] -> ids i32, weights [rows, top_k].

    Scores, choices and weights are in the logits' type. The bias only chooses; weights are the
    unbiased scores. Ties go to the lower id. Ids come out ascending, so that sums over a row's
    experts have one order.
    """
    scores = sigmoid(logits.double()).to(logits.dtype)
    choice = scores + bias
    if groups > top_groups:
        choice = _limit_groups(choice, groups, top_groups)
    chosen = torch.sort(choice, dim=-1, descending=True, stable=True).indices[:, :top_k]
    ids = chosen.sort(-1).values
    weights = scores.gather(-1, ids).double()
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return ids.int(), (weights * scaling).to(logits.dtype)


def _limit_groups(choice: Tensor, groups: int, top_groups: int) -> Tensor:
    """Bar experts outside the best groups; a group scores the sum of its two best choices."""
    rows, experts = choice.shape
    grouped = choice.view(rows, groups, experts // groups)
    group_scores = grouped.topk(2, dim=-1).values.sum(-1)
    best = torch.sort(group_scores, dim=-1, descending=True, stable=True).indices[:, :top_groups]
    barred = torch.ones(rows, groups, dtype=torch.bool).scatter(1, best, False)
    return grouped.masked_fill(barred.unsqueeze(-1), float("-inf")).view(rows, experts)
