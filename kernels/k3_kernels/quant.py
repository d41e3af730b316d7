"""Decoding of the release's number formats. All results are exact in float64.

| format | stored | value |
| --- | --- | --- |
| NVFP4 | e2m1 nibbles, low = even column; e4m3 scale a 16 columns; f32 global | product of the 3 |
| MXFP4 | e2m1 nibbles; e8m0 scale (2^(s-127)) a 32 columns | code * scale |
| FP8 | e4m3; f32 scale a 128x128 block, stored [out/128, 1, in/128, 1] | code * scale |
"""

from __future__ import annotations

import torch
from torch import Tensor

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1 = _MAGNITUDES + tuple(-m for m in _MAGNITUDES)
_PAIRS = torch.tensor([[_E2M1[b & 15], _E2M1[b >> 4]] for b in range(256)], dtype=torch.float64)

FP8_BLOCK = 128


def e2m1_pairs(packed: Tensor) -> Tensor:
    """u8 [..., n] -> f64 [..., 2n], low nibble first."""
    pairs = _PAIRS[packed.long()]
    return pairs.view(*packed.shape[:-1], 2 * packed.shape[-1])


def e4m3(raw: Tensor) -> Tensor:
    """u8 bytes of float8_e4m3fn -> f64."""
    return raw.view(torch.float8_e4m3fn).double()


def e8m0(raw: Tensor) -> Tensor:
    """u8 biased exponents -> f64 powers of two."""
    return torch.ldexp(torch.ones(raw.shape, dtype=torch.float64), raw.int() - 127)


def scaled_codes(packed: Tensor, scales: Tensor) -> Tensor:
    """u8 [..., n/2] codes times f64 [..., n/group] block scales -> f64 [..., n]."""
    codes = e2m1_pairs(packed)
    grouped = codes.view(*scales.shape, -1) * scales.unsqueeze(-1)
    return grouped.view(codes.shape)


def fp8_block_scales(scale: Tensor, out_features: int) -> Tensor:
    """f32 [out/128, 1, in/128, 1] -> f64 [out, in/128]: each row's scale a column block."""
    per_block = scale[:, 0, :, 0].double()
    return per_block.repeat_interleave(FP8_BLOCK, dim=0)[:out_features]


def fp8_matrix(raw: Tensor, scale: Tensor) -> Tensor:
    """u8 e4m3 [out, in] and its 4-D scales -> f64 [out, in]."""
    rows, columns = raw.shape
    by_column = fp8_block_scales(scale, rows).repeat_interleave(FP8_BLOCK, dim=1)[:, :columns]
    return e4m3(raw) * by_column
