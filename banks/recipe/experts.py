"""Routed experts of one layer: router, dispatch of rows to expert groups, combine.

Rows are copied into one [size, latent] grid in which every expert owns a run of rows, rounded up to
16 with zero rows, so that one grouped matrix product serves all experts, nothing is left out and
every shape is fixed by the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ALIGN = 16


def route(
    x: Tensor, gate: Tensor, bias: Tensor, top_k: int, scaling: float
) -> tuple[Tensor, Tensor]:
    """Chosen expert ids and their fp32 weights, both [rows, top_k]; the bias only chooses."""
    scores = torch.sigmoid(torch.nn.functional.linear(x.float(), gate.float()))
    chosen = torch.topk(scores + bias, top_k, dim=-1).indices
    weights = scores.gather(-1, chosen)
    return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20) * scaling


@dataclass(frozen=True)
class Grid:
    """Where every (row, choice) pair sits in the grid.

    `slot` [rows, top_k] is its grid row; `pair` [size] is the inverse, rows*top_k where empty;
    `ends` [experts] int32 is the end of every expert's run; `load` [experts] its pairs.
    """

    slot: Tensor
    pair: Tensor
    ends: Tensor
    load: Tensor


def plan_grid(chosen: Tensor, experts: int) -> Grid:
    """Assign grid rows in row order within each expert."""
    rows, top_k = chosen.shape
    size = rows * top_k + ALIGN * experts
    ordered, order = torch.sort(chosen.flatten().to(torch.int16), stable=True)
    edges = torch.arange(experts + 1, device=chosen.device, dtype=torch.int16)
    starts = torch.searchsorted(ordered, edges)
    load = starts[1:] - starts[:-1]
    ends = torch.cumsum((load + ALIGN - 1) // ALIGN * ALIGN, 0)
    shift = ends - (load + ALIGN - 1) // ALIGN * ALIGN - starts[:-1]
    target = torch.arange(rows * top_k, device=chosen.device) + shift[ordered.long()]
    slot = torch.empty_like(order).scatter_(0, order, target)
    pair = torch.full((size,), rows * top_k, device=chosen.device).scatter_(0, target, order)
    ends = torch.cat([ends[:-1], ends.new_full((1,), size)])
    return Grid(slot.view(rows, top_k), pair, ends.to(torch.int32), load)


def _with_zero_row(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_zeros(1, x.shape[1])])


class Scatter(torch.autograd.Function):
    """rows [n, z] -> grid [size, z]; the gradient gathers, without atomics."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, slot: Tensor, pair: Tensor) -> Tensor:
        ctx.save_for_backward(slot)
        return _with_zero_row(rows)[pair // slot.shape[1]]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (slot,) = ctx.saved_tensors
        return grads[0][slot].sum(1), None, None


class Combine(torch.autograd.Function):
    """Weighted sum over a row's experts: grid [size, z], weights [n, k] -> [n, z]."""

    @staticmethod
    def forward(ctx: Any, grid: Tensor, weights: Tensor, slot: Tensor, pair: Tensor) -> Tensor:
        ctx.save_for_backward(grid, weights, slot, pair)
        return (grid[slot].float() * weights[..., None]).sum(1).to(grid.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grid, weights, slot, pair = ctx.saved_tensors
        grad = grads[0]
        share = torch.cat([weights.flatten(), weights.new_zeros(1)])[pair].to(grad.dtype)
        dgrid = _with_zero_row(grad)[pair // slot.shape[1]] * share[:, None]
        dweights = (grid[slot].float() * grad.float()[:, None]).sum(-1)
        return dgrid, dweights, None, None


def grouped_product(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Rows of each expert's run times its matrix [out, in]; weights [experts, out, in]."""
    if x.is_cuda:
        product = torch._grouped_mm  # pyright: ignore[reportPrivateImportUsage]
        return product(x, weights.transpose(1, 2), offs=ends)
    sizes = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
    return torch.cat([part @ w.T for part, w in zip(x.split(sizes), weights, strict=True)])


def routed_experts(
    rows: Tensor, weights: Tensor, grid: Grid, w1: Tensor, w2: Tensor, w3: Tensor,
    activation: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """Sum over chosen experts of weight * w2 situ(w1 row, w3 row); rows [n, latent].

    w1, w3 are [experts, width, latent], w2 [experts, latent, width].
    """
    placed = Scatter.apply(rows, grid.slot, grid.pair)
    both = grouped_product(placed, torch.cat([w1, w3], 1).to(rows.dtype), grid.ends)
    gate, up = both.chunk(2, -1)
    out = grouped_product(activation(gate, up), w2.to(rows.dtype), grid.ends)
    return Combine.apply(out, weights, grid.slot, grid.pair)
