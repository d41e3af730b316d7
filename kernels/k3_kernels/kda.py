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
rows instead of every row, and taking rows back is forgetting them: `kda_rows_ahead` runs rows
that may be taken back without moving the anchor.

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

    inverse_key = e^-G k [16, heads, key], delta [16, heads, value], decay = G [16, heads, key].
    With `anchor` [heads, key, value] this is a layer's state; the anchor is f32 on its grid, or
    f64 when the state is fine. At position p the first p % 16 rows count; the others hold
    anything.
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
            decay=torch.zeros(BLOCK_ROWS, heads, key, dtype=wide),
        )

    @property
    def fine(self) -> bool:
        return self.anchor.dtype is torch.float64

    def copy_(self, other: KdaRows) -> None:
        self.anchor.copy_(other.anchor)
        self.inverse_key.copy_(other.inverse_key)
        self.delta.copy_(other.delta)
        self.decay.copy_(other.decay)

    def clone(self) -> KdaRows:
        return KdaRows(
            self.anchor.clone(), self.inverse_key.clone(), self.delta.clone(), self.decay.clone()
        )

    def fold_(self) -> None:
        """Move the anchor over sixteen rows; a coarse one is rounded to the grid of its dot
        products."""
        decay = self.decay[-1]
        shrink = torch.exp(decay)  # [heads, key]
        keys = self.inverse_key * shrink  # e^(G_15 - G_j) k_j
        update = (keys.unsqueeze(-1) * self.delta.unsqueeze(-2)).sum(0)
        anchor = self.anchor.double() * shrink.unsqueeze(-1) + update
        self.anchor.copy_(anchor if self.fine else to_grid(anchor, PAIR_BITS, dim=1))


def kda_rows_ahead(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: KdaRows, position: int
) -> Tensor:
    """`kda_rows` for rows that may be taken back: rows past the end of the block run on a folded
    copy that is dropped, so `state` stays right for whoever forgets the rows."""
    room = BLOCK_ROWS - position % BLOCK_ROWS
    if q.shape[0] <= room:
        return _rows_of_block(q, k, v, g, beta, state, position % BLOCK_ROWS)
    here = _rows_of_block(
        q[:room], k[:room], v[:room], g[:room], beta[:room], state, BLOCK_ROWS - room
    )
    copy = state.clone()
    copy.fold_()
    past = kda_rows(q[room:], k[room:], v[room:], g[room:], beta[room:], copy, position + room)
    return torch.cat((here, past))


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
        outputs.append(_rows_of_block(q[rows], k[rows], v[rows], g[rows], beta[rows], state, first))
        if first + stop - start == BLOCK_ROWS:
            state.fold_()
        start = stop
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _rows_of_block(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: KdaRows, first: int
) -> Tensor:
    """Rows `first`, first+1, ... of one block."""
    rows = q.shape[0]
    v = v.double()
    state.delta[first:] = 0.0  # what rows taken back left there
    for row in range(first, first + rows):  # a running sum, row after row
        before = state.decay[row - 1] if row else 0.0
        torch.add(g[row - first], before, out=state.decay[row])
    decay = state.decay[first : first + rows]  # [rows, heads, key]
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
    return anchor_reads[rows:] + (read.unsqueeze(-1) * state.delta).sum(1)


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
