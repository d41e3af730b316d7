"""An expert record: what a bank stores, a LOAD frame carries and a worker computes with.

A record is `atoms` atoms, one after the other; slice i of n is its i-th n-th part, so every
slice is one contiguous run of bytes. One atom holds `columns` intermediate columns:

| part | bytes | content |
| --- | --- | --- |
| header | 16 | f32 global scales of w1, w3, w2; u32 0 |
| w1 codes, w1 scales | columns * latent/2, columns * latent/group | rows of w1 |
| w3 codes, w3 scales | the same | rows of w3 |
| w2 codes, w2 scales | latent * columns/2, latent * columns/group | columns of w2 |

group is 16 (nvfp4: e4m3 scales) or 32 (mxfp4: e8m0 scales, global scales 1). Codes and scales are
the release's own bytes; nothing is re-quantised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from k3_kernels import ExpertWeights, Weight
from k3_kernels.grid import BLOCK
from k3_kernels.quant import e4m3, e8m0, scaled_codes
from torch import Tensor

from k3d.experts.shape import ATOM_HEADER_BYTES, FP4_GROUP, ExpertShape


@dataclass(frozen=True)
class ExpertTensors:
    """One expert as the checkpoint stores it. For w in w1, w3, w2: u8 codes [out, in/2], u8
    scales [out, in/group] and the global scale that multiplies them."""

    codes: tuple[Tensor, Tensor, Tensor]
    scales: tuple[Tensor, Tensor, Tensor]
    global_scales: tuple[float, float, float]


def pack_record(shape: ExpertShape, tensors: ExpertTensors) -> bytes:
    """Cut an expert into atoms; returns shape.record_bytes bytes."""
    atoms, columns = shape.atoms, shape.atom_columns
    group = FP4_GROUP[shape.format]
    header = np.zeros(4, dtype="<f4")
    header[:3] = tensors.global_scales
    parts = [np.broadcast_to(header.view(np.uint8), (atoms, ATOM_HEADER_BYTES))]
    for index in range(2):
        parts.append(tensors.codes[index].numpy().reshape(atoms, -1))
        parts.append(tensors.scales[index].numpy().reshape(atoms, -1))
    for matrix, width in ((tensors.codes[2], columns // 2), (tensors.scales[2], columns // group)):
        by_atom = matrix.numpy().reshape(shape.latent, atoms, width).transpose(1, 0, 2)
        parts.append(by_atom.reshape(atoms, -1))
    return np.concatenate(parts, axis=1).tobytes()


def decode_atoms(shape: ExpertShape, raw: Tensor) -> ExpertWeights:
    """u8 [atoms of a slice * atom_bytes] -> weights ready for the kernel. Exact."""
    columns, latent = shape.atom_columns, shape.latent
    group = FP4_GROUP[shape.format]
    atoms = raw.view(-1, shape.atom_bytes)
    global_scales = atoms[0, :12].clone().view(torch.float32).tolist()
    decode = e4m3 if shape.format == "nvfp4" else e8m0
    codes_bytes, scales_bytes = columns * latent // 2, columns * latent // group
    sizes = [ATOM_HEADER_BYTES] + [codes_bytes, scales_bytes] * 3
    _, *parts = atoms.split(sizes, dim=1)

    def matrix(index: int, *size: int) -> Tensor:
        codes = parts[2 * index].reshape(-1, *size[:-1], size[-1] // 2)
        scales = decode(parts[2 * index + 1].reshape(-1, *size[:-1], size[-1] // group))
        return scaled_codes(codes, scales)

    rows = atoms.shape[0] * columns
    gate_up = torch.cat((matrix(0, columns, latent), matrix(1, columns, latent)))
    gate_up = gate_up.view(1, 2 * rows, latent)
    per_row = torch.tensor(global_scales[:2], dtype=torch.float64).repeat_interleave(rows)
    blocks = -(-latent // min(latent, BLOCK))
    weight = Weight.from_matrix(gate_up, per_row.view(1, -1, 1).expand(-1, -1, blocks))
    down = matrix(2, latent, columns).transpose(0, 1)  # [latent, atoms, columns]
    return ExpertWeights.from_matrices(weight, down, global_scales[2])
