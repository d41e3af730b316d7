"""What one sequence keeps between passes.

KDA state and convolution history have two sides: a pass reads the committed side and writes the
other, and `commit` swaps them. A pass that fails half-way, or is taken back, leaves nothing
behind: it is simply not committed. Latent rows beyond `position` are garbage by definition.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from k3_kernels.conv import TAPS
from k3_kernels.kda import KdaRows
from torch import Tensor

from k3d.model.config import ModelConfig


@dataclass(frozen=True)
class KdaSide:
    """conv [3, 3 * channels] model dtype: the newest pre-convolution samples of q, k, v."""

    rows: KdaRows
    conv: Tensor

    def copy_(self, other: KdaSide) -> None:
        self.rows.copy_(other.rows)
        self.conv.copy_(other.conv)


class LaneState:
    """State of one lane for up to `capacity` positions."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, capacity: int) -> None:
        heads, dim = config.kda_heads, config.kda_head_dim
        self.capacity = capacity
        self.position = 0
        self._committed = 0
        self._kda = {
            layer: tuple(
                KdaSide(
                    KdaRows.zeros(heads, dim, dim, fine=dtype is torch.float64),
                    torch.zeros(TAPS - 1, 3 * heads * dim, dtype=dtype),
                )
                for _ in range(2)
            )
            for layer in config.kda_layers
        }
        width = config.kv_lora_rank + config.rope_dim
        self._latents = {
            layer: torch.zeros(capacity, width, dtype=dtype) for layer in config.mla_layers
        }

    def kda_work(self, layer: int) -> KdaSide:
        """The side a pass writes, brought up to the committed one."""
        sides = self._kda[layer]
        work = sides[1 - self._committed]
        work.copy_(sides[self._committed])
        return work

    def latents(self, layer: int) -> Tensor:
        """Latent rows [capacity, rank + shared]; rows at >= position are written by the pass."""
        return self._latents[layer]

    def commit(self, rows: int) -> None:
        """Make the last pass, of `rows` rows, part of the sequence."""
        self._committed = 1 - self._committed
        self.position += rows
