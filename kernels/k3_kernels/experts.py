"""One expert, or a slice of it, for the rows that chose it.

An expert's intermediate columns are cut into *atoms*; a slice is a whole number of them. An
atom's weighted output is rounded to a grid that the layer fixes and summed as int64, which is
exact in any order: whichever node holds which atoms, the sum has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from k3_kernels.grid import to_grid, weight_bits
from k3_kernels.linear import Weight, linear, narrowest
from k3_kernels.situ import situ


@dataclass(frozen=True)
class ExpertWeights:
    """Decoded atoms of one expert.

    gate_up: Weight of [2 * columns, latent] (all gate rows, then all up rows); down
    [atoms, atom columns, latent] on its grid, in the narrowest type that holds it exactly;
    down_scale: the global scale outside the grid.
    """

    gate_up: Weight
    down: Tensor
    down_scale: float

    @classmethod
    def from_matrices(cls, gate_up: Weight, down: Tensor, down_scale: float) -> ExpertWeights:
        """`down` f64 [latent, atoms, atom columns]: codes times block scales."""
        on_grid = to_grid(down, weight_bits(down.shape[-1]))
        return cls(gate_up, narrowest(on_grid.permute(1, 2, 0).contiguous()), down_scale)

    @property
    def size_bytes(self) -> int:
        return self.gate_up.codes.nbytes + self.down.nbytes


def expert_contributions(
    x: Tensor,
    row_weights: Tensor,
    expert: ExpertWeights,
    *,
    beta: float,
    linear_beta: float,
    grid_exponent: int,
) -> Tensor:
    """sum over atoms of round(weight * down situ(gate x, up x) / 2^grid_exponent).

    x [rows, latent] model dtype; row_weights f32 [rows]; returns i64 [rows, latent].
    """
    atoms, columns, _ = expert.down.shape
    gate_up = linear(x, expert.gate_up).to(x.dtype)
    gate, up = gate_up.split(atoms * columns, dim=-1)
    hidden = situ(gate, up, beta, linear_beta).to(x.dtype).double()
    hidden = to_grid(hidden.view(-1, atoms, columns)).transpose(0, 1)  # [atoms, rows, columns]
    outputs = torch.bmm(hidden, expert.down.double())  # exact
    factor = row_weights.double() * (expert.down_scale * 2.0**-grid_exponent)
    return torch.round(outputs * factor.view(1, -1, 1)).to(torch.int64).sum(0)
