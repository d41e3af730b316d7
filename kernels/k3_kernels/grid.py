"""Dot products whose value does not depend on the order of summation.

A BLAS picks another summation order when a call has more rows, another width or another thread
count, so a row's last bits change with its company. Here both factors of a dot product are first
rounded to a power-of-two grid with so few bits that every partial sum fits the 53-bit mantissa of
float64. Then no addition rounds, and **any** order gives the same bits: rows may be batched,
experts sliced and threads added freely.

Bits of one block of BLOCK = 128 terms: 26 for the activation (float32 has 24), 20 for the weight,
7 for the count of terms: 53. Twenty fixed-point bits hold every FP8 value (e4m3 spans 18), an FP4
value as long as its block scale is within 2^12 of its neighbours', and a bf16 weight down to 2^-12
of the largest in its block; anything smaller is off by at most 2^-21 of that largest. Where both
factors are activations, 23 bits each.

That is finer than float32. The fp32 mode, which is compared with float64 references after layers
that amplify every rounding, is *fine*: each factor is cut in two such parts, and the four products
are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 128
ACTIVATION_BITS = 26
MOST_WEIGHT_BITS = 24  # what float32 can store
PAIR_BITS = 23
MANTISSA_BITS = 53
_EXPONENT_FIELD = 0x7FF0000000000000


def weight_bits(terms: int) -> int:
    """Bits left for a weight when `terms` products are summed exactly (20 for 128 terms)."""
    return min(MOST_WEIGHT_BITS, MANTISSA_BITS - ACTIVATION_BITS - (terms - 1).bit_length())


def power_of_two_below(x: Tensor) -> Tensor:
    """Largest power of two <= x, elementwise (0 for 0); x f64 >= 0."""
    return (x.view(torch.int64) & _EXPONENT_FIELD).view(torch.float64)


def to_grid(x: Tensor, bits: int = ACTIVATION_BITS, dim: int = -1) -> Tensor:
    """Round f64 `x` to `bits` bits relative to the largest magnitude along `dim`.

    Adding and subtracting 1.5 * 2^k leaves a multiple of 2^(k-52), rounded half to even.
    """
    largest = torch.linalg.vector_norm(x, float("inf"), dim, keepdim=True)
    magic = power_of_two_below(largest) * (1.5 * 2.0 ** (MANTISSA_BITS - bits))
    return (x + magic) - magic


def grid_parts(
    x: Tensor, bits: int = ACTIVATION_BITS, dim: int = -1, *, fine: bool
) -> tuple[Tensor, ...]:
    """f64 `x` as parts on the grid: one, or when `fine` a second for what the first rounds away."""
    first = to_grid(x, bits, dim)
    return (first, to_grid(x - first, bits, dim)) if fine else (first,)


def product_of_parts(lefts: Sequence[Tensor], rights: Sequence[Tensor]) -> Tensor:
    """Matrix product of two sums of parts: every pair exact, the pairs added in a fixed order."""
    multiply = torch.bmm if lefts[0].dim() == rights[0].dim() == 3 else torch.matmul
    total = multiply(lefts[0], rights[0])
    for number, left in enumerate(lefts):
        for right in rights[1:] if number == 0 else rights:
            total = total + multiply(left, right)
    return total


def to_fixed_grid(x: Tensor, quantum: float) -> Tensor:
    """Round f64 `x` to multiples of `quantum` (a power of two); |x| < 2^51 * quantum."""
    magic = 1.5 * quantum * 2.0**52
    return (x + magic) - magic
