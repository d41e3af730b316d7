"""Experts, or slices of them, for the rows that chose them; several experts in one call.

An expert's intermediate columns are cut into *atoms*; a slice is a whole number of them. An
atom's weighted output is rounded to a grid that the layer fixes and summed as int64, which is
exact in any order: whichever node holds which atoms, the sum has the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from k3_kernels.grid import grid_parts, product_of_parts, to_grid, weight_bits
from k3_kernels.linear import Weight, linear, narrowest
from k3_kernels.situ import situ


@dataclass(frozen=True)
class ExpertWeights:
    """Decoded atoms of `experts` experts.

    gate_up: Weight of [experts, 2 * columns, latent] (all gate rows, then all up rows); down
    [experts, atoms, atom columns, latent] on its grid, in the narrowest type that holds it
    exactly; down_scale f64 [experts, 1]: the global scale outside the grid.
    """

    gate_up: Weight
    down: Tensor
    down_scale: Tensor

    @classmethod
    def from_matrices(cls, gate_up: Weight, down: Tensor, down_scale: float) -> ExpertWeights:
        """One expert; `down` f64 [latent, atoms, atom columns]: codes times block scales."""
        on_grid = to_grid(down, weight_bits(down.shape[-1]))
        scale = torch.tensor([[down_scale]], dtype=torch.float64)
        return cls(gate_up, narrowest(on_grid.permute(1, 2, 0).unsqueeze(0).contiguous()), scale)

    @classmethod
    def stacked(cls, experts: Sequence[ExpertWeights]) -> ExpertWeights:
        """Several experts as one."""
        if len(experts) == 1:
            return experts[0]
        return cls(
            Weight.joined([expert.gate_up for expert in experts]),
            torch.cat([expert.down for expert in experts]),
            torch.cat([expert.down_scale for expert in experts]),
        )

    @property
    def size_bytes(self) -> int:
        return self.gate_up.codes.nbytes + self.down.nbytes


def expert_contributions(
    x: Tensor,
    row_weights: Tensor,
    experts: ExpertWeights,
    *,
    beta: float,
    linear_beta: float,
    grid_exponent: int,
) -> Tensor:
    """sum over atoms of round(weight * down situ(gate x, up x) / 2^grid_exponent).

    x [experts, rows, latent] model dtype: each expert's own rows; row_weights
    [experts, rows]; returns i64 [experts, rows, latent].
    """
    count, atoms, columns, _ = experts.down.shape
    gate_up = linear(x, experts.gate_up).to(x.dtype)
    gate, up = gate_up.split(atoms * columns, dim=-1)
    hidden = situ(gate, up, beta, linear_beta).to(x.dtype).double()
    hidden = hidden.view(count, -1, atoms, columns).transpose(1, 2)
    parts = grid_parts(hidden, fine=x.dtype is torch.float64)
    outputs = product_of_parts(parts, (experts.down.double(),))  # [experts, atoms, rows, latent]
    factor = row_weights.double() * (experts.down_scale * 2.0**-grid_exponent)
    return torch.round(outputs * factor.view(count, 1, -1, 1)).to(torch.int64).sum(1)
