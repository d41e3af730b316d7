"""The recurrent state of a lane's KDA layers, and what is kept of rows that may be taken back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from k3_kernels import kda_gate, kda_rows, kda_rows_ahead, l2_norm, linear, short_conv
from k3_kernels.conv import TAPS
from k3_kernels.kda import BLOCK_ROWS, KdaRows
from k3_kernels.norm import sigmoid
from torch import Tensor

from k3d.model.config import ModelConfig
from k3d.model.weights import KdaWeights

HISTORY = TAPS - 1


@dataclass(frozen=True)
class KdaRecord:
    """A layer's inputs of some rows, in the model's dtype: enough to run them again.

    qkv [rows, 3 * channels] before the convolution, low_rank [rows, dim], beta [rows, heads].
    """

    qkv: Tensor
    low_rank: Tensor
    beta: Tensor

    @property
    def size_bytes(self) -> int:
        return sum(each.nbytes for each in (self.qkv, self.low_rank, self.beta))

    def cut(self, rows: slice) -> KdaRecord:
        return KdaRecord(self.qkv[rows], self.low_rank[rows], self.beta[rows])

    def compact(self) -> KdaRecord:
        """A copy that keeps nothing else in memory."""
        parts = (self.qkv, self.low_rank, self.beta)
        return KdaRecord(*torch.cat(parts, -1).split([part.shape[-1] for part in parts], dim=-1))


@dataclass(frozen=True)
class KdaInputs:
    """What the recurrence takes: q, k, decay f64 and v [rows, heads, dim], beta f64
    [rows, heads]."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    beta: Tensor

    @classmethod
    def of(
        cls, record: KdaRecord, mixed: Tensor, weights: KdaWeights, config: ModelConfig
    ) -> KdaInputs:
        """From a record and its convolved samples `mixed` [rows, 3 * channels]."""
        rows, heads, dim = mixed.shape[0], config.kda_heads, config.kda_head_dim
        mixed = mixed.view(rows, 3, heads, dim)
        z = linear(record.low_rank, weights.f_b).to(mixed.dtype).view(rows, heads, dim)
        return cls(
            l2_norm(mixed[:, 0]) * dim**-0.5,
            l2_norm(mixed[:, 1]),
            mixed[:, 2],
            kda_gate(z, weights.gate),
            sigmoid(record.beta.double()),
        )

    def cut(self, rows: slice) -> KdaInputs:
        return KdaInputs(
            self.q[rows], self.k[rows], self.v[rows], self.decay[rows], self.beta[rows]
        )

    def run(self, state: KdaRows, position: int, *, ahead: bool = False) -> Tensor:
        """o f64 [rows, heads, dim] on `state`, which is advanced."""
        run = kda_rows_ahead if ahead else kda_rows
        return run(self.q, self.k, self.v, self.decay, self.beta, state, position)


@dataclass(frozen=True)
class KdaSnapshot:
    """A lane's KDA state at a multiple of BLOCK_ROWS: anchors [layers, heads, key, value], conv
    [layers, 3, 3 * channels]."""

    anchors: Tensor
    conv: Tensor

    @property
    def size_bytes(self) -> int:
        return self.anchors.nbytes + self.conv.nbytes


class KdaState:
    """KDA of one lane: a KdaRows a layer, and the newest pre-convolution samples `conv`
    [layers, 3, 3 * channels] in the model's dtype."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        heads, dim, layers = config.kda_heads, config.kda_head_dim, config.kda_layers
        self.rows = [
            KdaRows.zeros(heads, dim, dim, fine=dtype is torch.float64) for _ in range(len(layers))
        ]
        self.conv = torch.zeros(len(layers), HISTORY, 3 * heads * dim, dtype=dtype)

    @property
    def size_bytes(self) -> int:
        parts = ((r.anchor, r.inverse_key, r.delta, r.decay) for r in self.rows)
        return self.conv.nbytes + sum(tensor.nbytes for each in parts for tensor in each)

    def fold(self) -> None:
        """Move every anchor over the block that is full."""
        for rows in self.rows:
            rows.fold_()

    def snapshot(self) -> KdaSnapshot:
        """A copy; only right at a multiple of BLOCK_ROWS."""
        return KdaSnapshot(torch.stack([rows.anchor for rows in self.rows]), self.conv.clone())

    def restore(self, snapshot: KdaSnapshot) -> None:
        for rows, anchor in zip(self.rows, snapshot.anchors, strict=True):
            rows.anchor.copy_(anchor)
        self.conv.copy_(snapshot.conv)


def convolve(
    histories: list[Tensor], qkv: Tensor, counts: list[int], weights: KdaWeights
) -> Tensor:
    """Convolution of several lanes' rows at once: qkv [rows, 3 * channels] holds counts[i] rows of
    the lane whose newest samples are histories[i]. Returns [rows, 3 * channels]."""
    if len(counts) == 1:
        return short_conv(torch.cat((histories[0], qkv)), weights.conv)
    pieces: list[Tensor] = []
    keep: list[Tensor] = []
    at = 0
    for history, part in zip(histories, qkv.split(counts), strict=True):
        pieces += (history, part)
        keep.append(torch.arange(at, at + part.shape[0]))
        at += HISTORY + part.shape[0]
    return short_conv(torch.cat(pieces), weights.conv)[torch.cat(keep)]


def replay(
    state: KdaRows, conv: Tensor, record: KdaRecord, weights: KdaWeights, config: ModelConfig
) -> None:
    """Run a record's rows from a block's start: the very operations of the pass they come from."""
    assert record.qkv.shape[0] <= BLOCK_ROWS
    samples = torch.cat((conv, record.qkv))
    inputs = KdaInputs.of(record, short_conv(samples, weights.conv), weights, config)
    inputs.run(state, 0)
    conv.copy_(samples[-HISTORY:])
