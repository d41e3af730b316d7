"""Number formats of the NVFP4 release: encode, decode and straight-through rounding.

Experts: E2M1 codes, an E4M3 scale a 16 columns, one power-of-two fp32 scale a tensor (w1 and w3 of
an expert share it). Attention matrices: E4M3 with an fp32 scale a 128x128 block.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
E4M3_MAX = 448.0
GROUP = 16
TILE = 128


@lru_cache
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """A table on the device, copied there once (a copy cannot be captured in a graph)."""
    return torch.tensor(values, device=device)


def global_scale(*weights: Tensor) -> Tensor:
    """Smallest power of two that lets every block scale fit E4M3; over the last two axes, fp32."""
    peak = torch.stack([w.abs().amax((-2, -1)) for w in weights]).amax(0).float()
    return torch.exp2(torch.ceil(torch.log2(peak.clamp_min(2.0**-60) / (6.0 * E4M3_MAX))))


def encode_nvfp4(weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Codes U8 [.., out, in/2] (low nibble = even column) and E4M3 scales [.., out, in/16]."""
    groups = weight.float().unflatten(-1, (-1, GROUP)) / scale[..., None, None, None]
    scales = (groups.abs().amax(-1) / 6.0).clamp_max(E4M3_MAX).to(torch.float8_e4m3fn)
    divisor = scales.float()[..., None]
    scaled = torch.where(divisor > 0, groups / divisor.clamp_min(2.0**-9), 0.0)
    codes = torch.bucketize(scaled.abs(), constant(MIDPOINTS, weight.device))
    codes = torch.where((scaled < 0) & (codes > 0), codes + 8, codes).flatten(-2).to(torch.uint8)
    return codes[..., 0::2] | (codes[..., 1::2] << 4), scales


def decode_nvfp4(codes: Tensor, scales: Tensor, scale: Tensor) -> Tensor:
    """fp32 weights from codes, block scales and the global scale, which multiplies."""
    table = constant(E2M1 + tuple(-v for v in E2M1), codes.device)
    nibbles = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()
    values = table[nibbles].unflatten(-1, (-1, GROUP)) * scales.float()[..., None]
    return values.flatten(-2) * scale[..., None, None]


def tiled(weight: Tensor) -> Tensor:
    """[out, in] -> [out/128, 128, in/128, 128], padded with zeros."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % TILE, 0, -rows % TILE))
    return padded.unflatten(0, (-1, TILE)).unflatten(2, (-1, TILE))


def encode_fp8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """E4M3 weights [out, in] and fp32 scales [ceil(out/128), 1, ceil(in/128), 1]."""
    rows, columns = weight.shape
    tiles = tiled(weight.float())
    scales = (tiles.abs().amax((1, 3), keepdim=True) / E4M3_MAX).clamp_min(2.0**-60)
    encoded = (tiles / scales).flatten(2).flatten(0, 1)[:rows, :columns].to(torch.float8_e4m3fn)
    return encoded.contiguous(), scales


def decode_fp8(encoded: Tensor, scales: Tensor) -> Tensor:
    """fp32 weights from E4M3 values and 128x128 block scales."""
    rows, columns = encoded.shape
    return (tiled(encoded.float()) * scales).flatten(2).flatten(0, 1)[:rows, :columns]


def rounded_nvfp4(weight: Tensor, scale: Tensor) -> Tensor:
    """Value after an NVFP4 round trip; the gradient passes straight through."""
    with torch.no_grad():
        error = decode_nvfp4(*encode_nvfp4(weight, scale), scale) - weight
    return weight + error


def rounded_fp8(weight: Tensor) -> Tensor:
    """Value after an FP8 block round trip; the gradient passes straight through."""
    with torch.no_grad():
        error = decode_fp8(*encode_fp8(weight)) - weight
    return weight + error
