"""MXFP4 experts as NVFP4, value for value.

A block of 32 with scale 2^k becomes two blocks of 16 whose E4M3 scale is 2^(k - b), under one
global scale 2^b: w1 and w3 share theirs, w2 has its own. E4M3 holds the powers 2^-9 .. 2^8, so a
spread of up to 17 is exact at once; beyond it a block is exact where all of its codes can be
halved or doubled instead. The code of -0 becomes that of +0.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LEAST, MOST = -9, 8
"""Exponents of the smallest and largest power of two in E4M3."""
BIAS = 127
MOST_SHIFT = 3
"""No code of E2M1 but 0 can be doubled or halved more often."""
_HALVES = (0, 1, 2, 3, 4, 6, 8, 12)
"""Magnitudes of E2M1, in halves."""
_IMPOSSIBLE = 0xFF


def _scale_bytes() -> np.ndarray:
    """E4M3 bytes of 2^LEAST .. 2^MOST."""
    subnormal = [1, 2, 4]
    normal = [(exponent + 7) << 3 for exponent in range(-6, MOST + 1)]
    return np.array(subnormal + normal, dtype=np.uint8)


def _shifted_codes() -> np.ndarray:
    """u8 [7, 16]: the code of each code times 2^(row - 3), or _IMPOSSIBLE."""
    table = np.full((2 * MOST_SHIFT + 1, 16), _IMPOSSIBLE, dtype=np.uint8)
    for row in range(len(table)):
        for code in range(16):
            value = _HALVES[code & 7] * 2.0 ** (row - MOST_SHIFT)
            if value in _HALVES:
                sign = code & 8 if value else 0
                table[row, code] = _HALVES.index(int(value)) | sign
    return table


_SCALES = _scale_bytes()
_SHIFTED = _shifted_codes()


def recast(matrices: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor, float]] | None:
    """MXFP4 matrices that share a global scale, as NVFP4; None where that would not be exact.

    In: u8 codes [out, in/2] and u8 e8m0 scales [out, in/32] each. Out: u8 codes of the same shape,
    u8 e4m3 scales [out, in/16] and the global scale.
    """
    unpacked = [_unpack(codes) for codes, _ in matrices]
    exponents = [scales.numpy().astype(np.int64) - BIAS for _, scales in matrices]
    live = [(codes & 7).any(axis=-1) for codes in unpacked]
    largest = max(int(each.max()) for each in exponents)
    living = [each[alive] for each, alive in zip(exponents, live, strict=True) if alive.any()]
    reach = max((int(each.max()) for each in living), default=largest)
    for base in (largest - MOST, *(reach - MOST - down for down in range(MOST_SHIFT + 1))):
        cast = [_under(base, codes, each) for codes, each in zip(unpacked, exponents, strict=True)]
        if all(one is not None for one in cast):
            return [(*one, 2.0**base) for one in cast if one is not None]
    return None


def _under(base: int, codes: np.ndarray, exponents: np.ndarray) -> tuple[Tensor, Tensor] | None:
    """Codes [out, blocks, 32] with exponents [out, blocks] under the global scale 2^base."""
    relative = exponents - base
    held = relative.clip(LEAST, MOST)
    shift = (relative - held).clip(-MOST_SHIFT - 1, MOST_SHIFT + 1)
    beyond = np.abs(shift) > MOST_SHIFT
    if (codes[beyond] & 7).any():
        return None
    rows = np.where(beyond, MOST_SHIFT, shift + MOST_SHIFT)
    found = _SHIFTED[rows[..., None], codes]
    if (found == _IMPOSSIBLE).any():
        return None
    pairs = found.reshape(len(found), -1, 2)
    packed = pairs[..., 0] | pairs[..., 1] << 4
    scales = np.repeat(_SCALES[held - LEAST], 2, axis=1)
    return torch.from_numpy(packed), torch.from_numpy(scales)


def _unpack(codes: Tensor) -> np.ndarray:
    """u8 [out, in/2] -> u8 [out, in/32, 32]; the low nibble is the even column."""
    packed = codes.numpy()
    nibbles = np.stack((packed & 15, packed >> 4), axis=-1)
    return nibbles.reshape(len(packed), -1, 32)
