"""Matrix products over the grid: `y = W x` with bits that depend on the row alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from k3_kernels.grid import BLOCK, to_grid, weight_bits


@dataclass(frozen=True)
class Weight:
    """A matrix [out, in] prepared for exact block sums.

    codes: [..., blocks, block, out], each block on its grid, in the narrowest type that holds
    them exactly; scale: f64 [..., blocks, 1, out] multiplies a block's sum (FP8 and FP4 scales
    that are not part of the grid), or None for 1.
    """

    codes: Tensor
    scale: Tensor | None
    in_features: int

    @classmethod
    def from_matrix(cls, matrix: Tensor, scale: Tensor | None = None) -> Weight:
        """From [..., out, in] values; `scale` [..., out, blocks] when the values are codes."""
        *lead, out, width = matrix.shape
        block = min(width, BLOCK)
        blocks = -(-width // block)
        padded = torch.nn.functional.pad(matrix.double(), (0, blocks * block - width))
        codes = to_grid(padded.view(*lead, out, blocks, block), weight_bits(block))
        order = (*range(len(lead)), len(lead) + 1, len(lead) + 2, len(lead))
        scale = None if scale is None else scale.double().transpose(-1, -2).unsqueeze(-2)
        return cls(narrowest(codes.permute(order).contiguous()), scale, width)

    @classmethod
    def stacked(cls, weights: list[Weight]) -> Weight:
        """One weight whose outputs are the outputs of `weights` in order (same inputs)."""
        scales = [w.scale for w in weights]
        scale = None
        if any(s is not None for s in scales):
            scale = torch.cat(
                [
                    torch.ones_like(w.codes[..., :1, :]).double() if w.scale is None else w.scale
                    for w in weights
                ],
                dim=-1,
            )
        codes = torch.cat([w.codes for w in weights], dim=-1)
        return cls(codes, scale, weights[0].in_features)

    @classmethod
    def joined(cls, weights: list[Weight]) -> Weight:
        """Weights of [heads, out, in], all scaled or none, one after the other along the heads."""
        scales = [w.scale for w in weights if w.scale is not None]
        return cls(
            torch.cat([w.codes for w in weights]),
            torch.cat(scales) if scales else None,
            weights[0].in_features,
        )


def narrowest(codes: Tensor) -> Tensor:
    """The same values in bf16 if that is exact, else in f32, which holds any grid.

    Weights of every release format are exact in bf16. Each use widens them again, which costs
    less than reading four times the memory.
    """
    narrow = codes.bfloat16()
    return narrow if torch.equal(narrow.double(), codes) else codes.float()


def _blocked(x: Tensor, weight: Weight) -> Tensor:
    """[..., in] any float -> f64 [..., blocks, block] on the activation grid."""
    blocks, block = weight.codes.shape[-3:-1]
    x = x.double()
    if blocks * block != weight.in_features:
        x = torch.nn.functional.pad(x, (0, blocks * block - weight.in_features))
    return to_grid(x.view(*x.shape[:-1], blocks, block))


def _sum_blocks(products: Tensor, scale: Tensor | None) -> Tensor:
    """[..., blocks, rows, out] -> [..., rows, out], block after block: an order the model fixes."""
    if scale is not None:
        products = products * scale
    total = products.select(-3, 0)
    for block in range(1, products.shape[-3]):
        total = total + products.select(-3, block)
    return total


def linear(x: Tensor, weight: Weight) -> Tensor:
    """x [rows, in] -> f64 [rows, out]."""
    products = torch.bmm(_blocked(x, weight).transpose(0, 1), weight.codes.double())
    return _sum_blocks(products, weight.scale)


def head_linear(x: Tensor, weight: Weight) -> Tensor:
    """A matrix a head: x [heads, rows, in], weight [heads, out, in] -> f64 [heads, rows, out]."""
    blocked = _blocked(x, weight).transpose(1, 2)  # [heads, blocks, rows, block]
    return _sum_blocks(torch.matmul(blocked, weight.codes.double()), weight.scale)
