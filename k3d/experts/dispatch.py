"""Payloads of the frames that carry experts' work. Little-endian, no padding.

DISPATCH (rows, layer and epoch are in the frame header):

| part | type | content |
| --- | --- | --- |
| ids | i32 [rows, top_k] | experts this tier is asked for; -1 where another tier serves |
| weights | f32 or f64 [rows, top_k] | router weights; f64 beside f64 activations |
| x | bf16 or f64 [rows, latent] | activations |

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

# The fp32 mode keeps float64 between operations: float32's own rounding, amplified by the
# layers, is what would separate it from a float64 reference.
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float64}


def as_bytes(tensor: Tensor) -> memoryview:
    """A contiguous tensor's own memory as bytes."""
    return tensor.view(-1).view(torch.uint8).numpy().data


def _typed(part: memoryview, dtype: torch.dtype) -> Tensor:
    """Part of a payload as a tensor; 8-byte types are copied, since parts are 4-byte aligned."""
    if dtype.itemsize < 8:
        return torch.frombuffer(part, dtype=dtype)
    return torch.frombuffer(part, dtype=torch.uint8).clone().view(dtype)


class DispatchLayout:
    """Sizes of both payloads for one shape and dtype."""

    def __init__(self, shape: ExpertShape, dtype: torch.dtype) -> None:
        self.top_k = shape.top_k
        self.latent = shape.latent
        self.dtype = dtype
        self.weights_dtype = torch.float64 if dtype is torch.float64 else torch.float32
        self._ids_bytes = 4 * shape.top_k
        self._weights_bytes = self.weights_dtype.itemsize * shape.top_k
        self._x_bytes = shape.latent * dtype.itemsize
        self._partial_bytes = 8 * shape.latent

    def dispatch_bytes(self, rows: int) -> int:
        return rows * (self._ids_bytes + self._weights_bytes + self._x_bytes)

    def partial_bytes(self, rows: int) -> int:
        return rows * (self._ids_bytes + self._partial_bytes)

    def read_dispatch(self, payload: memoryview, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """ids, weights, x as views of the payload; used before the payload is reused."""
        self._check("dispatch", payload, self.dispatch_bytes(rows))
        ids_end = rows * self._ids_bytes
        weights_end = ids_end + rows * self._weights_bytes
        ids = _typed(payload[:ids_end], torch.int32)
        weights = _typed(payload[ids_end:weights_end], self.weights_dtype)
        x = _typed(payload[weights_end:], self.dtype)
        shape = (rows, self.top_k)
        return ids.view(shape), weights.view(shape), x.view(rows, self.latent)

    def read_partial(self, payload: memoryview, rows: int) -> tuple[Tensor, Tensor]:
        """served, partial as views of the payload."""
        self._check("partial", payload, self.partial_bytes(rows))
        cut = rows * self._ids_bytes
        served = _typed(payload[:cut], torch.int32)
        partial = _typed(payload[cut:], torch.int64)
        return served.view(rows, self.top_k), partial.view(rows, self.latent)

    def _check(self, kind: str, payload: memoryview, wanted: int) -> None:
        if len(payload) != wanted:
            raise FabricError(f"a {kind} payload of {len(payload)} bytes, not {wanted}")
