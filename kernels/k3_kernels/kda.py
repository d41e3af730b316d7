"""Kimi Delta Attention, one block of sixteen rows at a time.

The recurrence (one head, state S [key, value], row i):

    S <- diag(exp(g_i)) S;   d_i = beta_i (v_i - S^T k_i);   S <- S + k_i d_i^T;   o_i = S^T q_i

is run from an *anchor*: the state at the last multiple of sixteen positions. With G_i the sum of
the log decays since the anchor, unrolling gives

    d_i = beta_i (v_i - (e^G_i k_i)^T S - sum_(j<i) A_ij d_j),  A_ij = sum_c k_i k_j e^(G_i - G_j)
    o_i = (e^G_i q_i)^T S + sum_(j<=i) B_ij d_j,                B_ij = sum_c q_i k_j e^(G_i - G_j)
    S'  = diag(e^G_15) S + sum_j (e^(G_15 - G_j) k_j) d_j^T

A row needs the anchor and the rows of its own block before it, nothing else: a prompt's rows and
a decoded row run the same arithmetic whatever the chunk, the state is written once in sixteen
rows instead of every row, and taking rows back is forgetting them.

Sixteen rows of decay >= -5 keep |G| <= 80, so e^-G stays finite in float32's exponent range too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from k3_kernels.grid import PAIR_BITS, grid_parts, product_of_parts, to_grid
from k3_kernels.norm import sigmoid

BLOCK_ROWS = 16


@dataclass(frozen=True)
class KdaGate:
    """Constants of the decay gate: rate = exp(A_log) f64 [heads, 1], dt_bias f64 [heads, dim]."""

    rate: Tensor
    dt_bias: Tensor
    lower_bound: float


def kda_gate(z: Tensor, gate: KdaGate) -> Tensor:
    """Log decay lower_bound * sigmoid(exp(A_log) (z + dt_bias)); z [rows, heads, dim] -> f64."""
    return gate.lower_bound * sigmoid(gate.rate * (z.double() + gate.dt_bias))


@dataclass
class KdaRows:
    """The rows of the block in progress: f64, row-first, written in place.

    inverse_key = e^-G k [16, heads, key], delta [16, heads, value], decay = G of the last row
    [heads, key]. With `anchor` [heads, key, value] this is a layer's state; the anchor is f32 on
    its grid, or f64 when the state is fine.
    """

    anchor: Tensor
    inverse_key: Tensor
    delta: Tensor
    decay: Tensor

    @classmethod
    def zeros(cls, heads: int, key: int, value: int, *, fine: bool = False) -> KdaRows:
        wide = torch.float64
        return cls(
            anchor=torch.zeros(heads, key, value, dtype=wide if fine else torch.float32),
            inverse_key=torch.zeros(BLOCK_ROWS, heads, key, dtype=wide),
            delta=torch.zeros(BLOCK_ROWS, heads, value, dtype=wide),
            decay=torch.zeros(heads, key, dtype=wide),
        )

    @property
    def fine(self) -> bool:
        return self.anchor.dtype is torch.float64

    def copy_(self, other: KdaRows) -> None:
        self.anchor.copy_(other.anchor)
        self.inverse_key.copy_(other.inverse_key)
        self.delta.copy_(other.delta)
        self.decay.copy_(other.decay)

    def zero_(self) -> None:
        for tensor in (self.anchor, self.inverse_key, self.delta, self.decay):
            tensor.zero_()


def kda_rows(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: KdaRows, position: int
) -> Tensor:
    """Run rows at `position`, position+1, ... and advance `state` in place.

    q, k, g f64 [rows, heads, key] (normalised, q scaled); v [rows, heads, value]; beta f64
    [rows, heads]. Returns o f64 [rows, heads, value].
    """
    outputs = []
    start = 0
    while start < q.shape[0]:
        first = (position + start) % BLOCK_ROWS
        stop = min(start + BLOCK_ROWS - first, q.shape[0])
        rows = slice(start, stop)
        outputs.append(
            _rows_of_block(q[rows], k[rows], v[rows].double(), g[rows], beta[rows], state, first)
        )
        start = stop
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _rows_of_block(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: KdaRows, first: int
) -> Tensor:
    """Rows `first`, first+1, ... of one block; folds the block into the anchor when it is full."""
    rows = q.shape[0]
    decays = []  # a running sum, row after row
    total = state.decay if first else torch.zeros_like(state.decay)
    for row in range(rows):
        total = total + g[row]
        decays.append(total)
    state.decay.copy_(total)
    decay = torch.stack(decays)  # [rows, heads, key]
    shrink = torch.exp(decay)
    state.inverse_key[first : first + rows] = k * torch.exp(-decay)

    reach = torch.cat((shrink * k, shrink * q))  # what reads the anchor, [2 rows, heads, key]
    reaches = grid_parts(reach.transpose(0, 1), PAIR_BITS, fine=state.fine)
    anchors = grid_parts(state.anchor.double(), PAIR_BITS, dim=1, fine=state.fine)
    anchor_reads = product_of_parts(reaches, anchors).transpose(0, 1)
    pairs = reach.unsqueeze(1) * state.inverse_key  # [2 rows, 16, heads, key]
    strength = pairs.sum(-1)  # A below, B on top of it
    order = torch.arange(BLOCK_ROWS)
    at = torch.arange(first, first + rows).unsqueeze(1)
    earlier = (order < at).unsqueeze(-1)  # [rows, 16, 1]
    until = (order <= at).unsqueeze(-1)
    below = torch.where(earlier, strength[:rows], 0.0) * beta.unsqueeze(1)
    read = torch.where(until, strength[rows:], 0.0)

    wanted = beta.unsqueeze(-1) * (v - anchor_reads[:rows])  # [rows, heads, value]
    for row in range(rows):
        known = (below[row].unsqueeze(-1) * state.delta).sum(0)
        state.delta[first + row] = wanted[row] - known
    out = anchor_reads[rows:] + (read.unsqueeze(-1) * state.delta).sum(1)
    if first + rows == BLOCK_ROWS:
        _fold_block(state)
    return out


def _fold_block(state: KdaRows) -> None:
    """Move the anchor sixteen rows on; a coarse one is rounded to the grid of its dot products."""
    shrink = torch.exp(state.decay)  # [heads, key]
    keys = state.inverse_key * shrink  # e^(G_15 - G_j) k_j
    update = (keys.unsqueeze(-1) * state.delta.unsqueeze(-2)).sum(0)
    anchor = state.anchor.double() * shrink.unsqueeze(-1) + update
    state.anchor.copy_(anchor if state.fine else to_grid(anchor, PAIR_BITS, dim=1))


def kda_recurrent(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The textbook recurrence in f64, the oracle of `kda_rows`: state [heads, key, value]."""
    outputs = []
    for row in range(q.shape[0]):
        state = state * torch.exp(g[row]).unsqueeze(-1)
        predicted = (state * k[row].unsqueeze(-1)).sum(1)
        delta = beta[row].unsqueeze(-1) * (v[row].double() - predicted)
        state = state + k[row].unsqueeze(-1) * delta.unsqueeze(1)
        outputs.append((state * q[row].unsqueeze(-1)).sum(1))
    return torch.stack(outputs), state
