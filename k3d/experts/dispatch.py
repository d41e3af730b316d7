"""Payloads of the frames that carry experts' work. Little-endian, no padding.

DISPATCH (rows, layer and epoch are in the frame header):

| part | type | content |
| --- | --- | --- |
| ids | i32 [rows, top_k] | experts this tier is asked for; -1 where another tier serves |
| weights | f32 [rows, top_k] | router weights |
| x | bf16 or f32 [rows, latent] | activations |

PARTIAL:

| part | type | content |
| --- | --- | --- |
| served | i32 [rows, top_k] | experts really computed, in place; -1 elsewhere |
| partial | i64 [rows, latent] | sum of contributions on the layer's grid |
"""

from __future__ import annotations

import torch
from torch import Tensor

from k3d.errors import FabricError
from k3d.experts.shape import ExpertShape

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def as_bytes(tensor: Tensor) -> memoryview:
    """A contiguous tensor's own memory as bytes."""
    return tensor.view(-1).view(torch.uint8).numpy().data


class DispatchLayout:
    """Sizes of both payloads for one shape and dtype."""

    def __init__(self, shape: ExpertShape, dtype: torch.dtype) -> None:
        self.top_k = shape.top_k
        self.latent = shape.latent
        self.dtype = dtype
        self._ids_bytes = 4 * shape.top_k
        self._x_bytes = shape.latent * dtype.itemsize
        self._partial_bytes = 8 * shape.latent

    def dispatch_bytes(self, rows: int) -> int:
        return rows * (2 * self._ids_bytes + self._x_bytes)

    def partial_bytes(self, rows: int) -> int:
        return rows * (self._ids_bytes + self._partial_bytes)

    def read_dispatch(self, payload: memoryview, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """ids, weights, x as views of the payload; used before the payload is reused."""
        self._check("dispatch", payload, self.dispatch_bytes(rows))
        cut = rows * self._ids_bytes
        ids = torch.frombuffer(payload[:cut], dtype=torch.int32).view(rows, self.top_k)
        weights = torch.frombuffer(payload[cut : 2 * cut], dtype=torch.float32)
        x = torch.frombuffer(payload[2 * cut :], dtype=self.dtype)
        return ids, weights.view(rows, self.top_k), x.view(rows, self.latent)

    def read_partial(self, payload: memoryview, rows: int) -> tuple[Tensor, Tensor]:
        """served, partial as views of the payload."""
        self._check("partial", payload, self.partial_bytes(rows))
        cut = rows * self._ids_bytes
        served = torch.frombuffer(payload[:cut], dtype=torch.int32).view(rows, self.top_k)
        # torch wants 8-byte aligned int64; rows * 4 * top_k is a multiple of 8 only for even counts
        partial = torch.frombuffer(payload[cut:], dtype=torch.uint8).clone().view(torch.int64)
        return served, partial.view(rows, self.latent)

    def _check(self, kind: str, payload: memoryview, wanted: int) -> None:
        if len(payload) != wanted:
            raise FabricError(f"a {kind} payload of {len(payload)} bytes, not {wanted}")
