"""Matrix products over the grid: `y = W x` with bits that depend on the row alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from k3_kernels.grid import BLOCK, grid_parts, product_of_parts, weight_bits


@dataclass(frozen=True)
class Weight:
    """A matrix [out, in] prepared for exact block sums.

    codes: [..., blocks, block, out], each block on its grid, in the narrowest type that holds
    them exactly; rest: what the grid rounds away, likewise, or None where that is dropped;
    scale: f64 [..., blocks, 1, out] multiplies a block's sum (FP8 and FP4 scales that are not
    part of the grid), or None for 1.
    """

    codes: Tensor
    rest: Tensor | None
    scale: Tensor | None
    in_features: int

    @classmethod
    def from_matrix(
        cls, matrix: Tensor, scale: Tensor | None = None, *, fine: bool = False
    ) -> Weight:
        """From [..., out, in] values; `scale` [..., out, blocks] when the values are codes.

        `fine` keeps what the grid rounds away.
        """
        *lead, out, width = matrix.shape
        block = min(width, BLOCK)
        blocks = -(-width // block)
        padded = torch.nn.functional.pad(matrix.double(), (0, blocks * block - width))
        parts = grid_parts(padded.view(*lead, out, blocks, block), weight_bits(block), fine=fine)
        order = (*range(len(lead)), len(lead) + 1, len(lead) + 2, len(lead))
        codes, *rest = (narrowest(part.permute(order).contiguous()) for part in parts)
        scale = None if scale is None else scale.double().transpose(-1, -2).unsqueeze(-2)
        return cls(codes, rest[0] if rest else None, scale, width)

    @classmethod
    def stacked(cls, weights: Sequence[Weight]) -> Weight:
        """One weight whose outputs are the outputs of `weights` in order (same inputs)."""
        return cls._concatenated(weights, -1)

    @classmethod
    def joined(cls, weights: Sequence[Weight]) -> Weight:
        """Weights of [heads, out, in] one after the other along the heads."""
        return cls._concatenated(weights, 0)

    @classmethod
    def _concatenated(cls, weights: Sequence[Weight], dim: int) -> Weight:
        rest = scale = None
        if any(w.rest is not None for w in weights):
            rests = [torch.zeros_like(w.codes) if w.rest is None else w.rest for w in weights]
            rest = torch.cat(rests, dim)
        if any(w.scale is not None for w in weights):
            ones = [torch.ones_like(w.codes[..., :1, :], dtype=torch.float64) for w in weights]
            scale = torch.cat(
                [one if w.scale is None else w.scale for w, one in zip(weights, ones, strict=True)],
                dim,
            )
        codes = torch.cat([w.codes for w in weights], dim)
        return cls(codes, rest, scale, weights[0].in_features)

    def parts(self) -> tuple[Tensor, ...]:
        """f64 parts whose sum is the matrix, each on its grid."""
        return (self.codes.double(),) if self.rest is None else (
            self.codes.double(), self.rest.double()
        )  # fmt: skip


def narrowest(codes: Tensor) -> Tensor:
    """The same values in bf16 if that is exact, else in f32, which holds any grid.

    Weights of every release format are exact in bf16. Each use widens them again, which costs
    less than reading four times the memory.
    """
    narrow = codes.bfloat16()
    return narrow if torch.equal(narrow.double(), codes) else codes.float()


def _blocked(x: Tensor, weight: Weight) -> tuple[Tensor, ...]:
    """[..., rows, in] -> parts f64 [..., blocks, rows, block] on the activation grid."""
    blocks, block = weight.codes.shape[-3:-1]
    wide = x.double()
    if blocks * block != weight.in_features:
        wide = torch.nn.functional.pad(wide, (0, blocks * block - weight.in_features))
    wide = wide.reshape(*x.shape[:-1], blocks, block)
    parts = grid_parts(wide, fine=x.dtype is torch.float64)
    return tuple(part.transpose(-2, -3) for part in parts)


def linear(x: Tensor, weight: Weight) -> Tensor:
    """x [rows, in] -> f64 [rows, out]; or a matrix a head: [heads, rows, in] and a weight of
    [heads, out, in] -> [heads, rows, out]. x in float64 is fine (see grid)."""
    products = product_of_parts(_blocked(x, weight), weight.parts())
    if weight.scale is not None:
        products = products * weight.scale
    total = products.select(-3, 0)
    for block in range(1, products.shape[-3]):
        total = total + products.select(-3, block)  # an order the model fixes
    return total
