"""Experts of a small shape for tests: drawn codes and scales, no checkpoint needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor

from k3d.experts.record import ExpertTensors, pack_record
from k3d.experts.shape import FP4_GROUP, ExpertFormat, ExpertShape
from k3d.experts.worker import SliceWorker

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def tiny_shape(
    form: ExpertFormat = "nvfp4",
    *,
    width: int = 128,
    latent: int = 96,
    experts: int = 12,
    top_k: int = 4,
    layers: tuple[int, ...] = (1, 2, 3),
) -> ExpertShape:
    """128 columns are eight NVFP4 atoms or four MXFP4 ones."""
    return ExpertShape(
        layers=layers,
        experts=experts,
        latent=latent,
        width=width,
        top_k=top_k,
        format=form,
        situ_beta=4.0,
        situ_linear_beta=25.0,
        grid_exponents=tuple(-40 - layer for layer in layers),
    )


def draw_tensors(shape: ExpertShape, seed: int) -> ExpertTensors:
    random = np.random.default_rng(seed)
    codes, scales = [], []
    for out, width in ((shape.width, shape.latent),) * 2 + ((shape.latent, shape.width),):
        codes.append(torch.from_numpy(random.integers(0, 256, (out, width // 2), dtype=np.uint8)))
        groups = (out, width // FP4_GROUP[shape.format])
        low, high = (0x20, 0x58) if shape.format == "nvfp4" else (120, 129)
        scales.append(torch.from_numpy(random.integers(low, high, groups, dtype=np.uint8)))
    global_scales = (0.125, 0.125, 0.03125) if shape.format == "nvfp4" else (1.0, 1.0, 1.0)
    return ExpertTensors(tuple(codes), tuple(scales), global_scales)  # type: ignore[arg-type]


def decode(shape: ExpertShape, tensors: ExpertTensors, index: int) -> np.ndarray:
    """One matrix value by value, by the format's definition: w1, w3, w2 are index 0, 1, 2."""
    codes, scales = tensors.codes[index].numpy(), tensors.scales[index].numpy()
    rows, columns = codes.shape[0], 2 * codes.shape[1]
    matrix = np.empty((rows, columns))
    for row in range(rows):
        for column in range(columns):
            code = codes[row, column // 2] >> (4 * (column % 2)) & 15
            raw = int(scales[row, column // FP4_GROUP[shape.format]])
            if shape.format == "mxfp4":
                scale = 2.0 ** (raw - 127)
            else:
                scale = (1 + (raw & 7) / 8) * 2.0 ** ((raw >> 3) - 7)
            matrix[row, column] = (-1 if code & 8 else 1) * E2M1[code & 7] * scale
    return matrix * tensors.global_scales[index]


def seed_of(layer: int, expert: int) -> int:
    return 1000 * layer + expert


def record_of(shape: ExpertShape, layer: int, expert: int) -> bytes:
    return pack_record(shape, draw_tensors(shape, seed_of(layer, expert)))


def everything(shape: ExpertShape) -> Iterator[tuple[int, int, int]]:
    """(slot, layer, expert) of every expert."""
    for index, layer in enumerate(shape.layers):
        for expert in range(shape.experts):
            yield index * shape.experts + expert, layer, expert


def worker_of(
    shape: ExpertShape, index: int = 0, count: int = 1, *, cache_bytes: int = 64 * 2**20
) -> SliceWorker:
    """A worker that holds slice `index` of `count` of every expert."""
    slots = len(shape.layers) * shape.experts
    worker = SliceWorker(shape, slots, index, count, cache_bytes=cache_bytes, name=f"slice-{index}")
    size = shape.slice_bytes(count)
    for slot, layer, expert in everything(shape):
        part = memoryview(record_of(shape, layer, expert))[index * size : (index + 1) * size]
        worker.load(slot, layer, expert, part, blake3(part).digest())
    return worker


@dataclass(frozen=True)
class Dispatch:
    ids: Tensor
    weights: Tensor
    x: Tensor


def draw_dispatch(
    shape: ExpertShape, seed: int, rows: int, dtype: torch.dtype = torch.float64
) -> Dispatch:
    """Each row asks for `top_k` different experts, ascending."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack(
        [torch.randperm(shape.experts, generator=generator)[: shape.top_k] for _ in range(rows)]
    )
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    weights = torch.rand(rows, shape.top_k, generator=generator).to(wide)
    x = torch.randn(rows, shape.latent, generator=generator).to(dtype)
    return Dispatch(ids.sort(-1).values.int(), weights / weights.sum(-1, keepdim=True), x)
