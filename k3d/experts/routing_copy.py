"""A copy of what the router chose in the pass under way, for whoever records it."""

from __future__ import annotations

import torch
from torch import Tensor

from k3d.experts.shape import ExpertShape


class RoutingCopy:
    """ids i32 and weights f32 [layers, max_rows, top_k], written over by every pass; weights only
    while `weighs`, which changes between passes.

    The engine's thread writes and reads. Layers come in ascending order; a pass that failed in the
    middle is not complete, and the next one begins anew.
    """

    def __init__(self, shape: ExpertShape, max_rows: int) -> None:
        self._row_of = {layer: row for row, layer in enumerate(shape.layers)}
        size = (len(shape.layers), max_rows, shape.top_k)
        self.ids = torch.zeros(size, dtype=torch.int32)
        self.weights = torch.zeros(size, dtype=torch.float32)
        self.rows = 0
        self.weighs = False
        self._layers = 0

    @property
    def complete(self) -> bool:
        """Whether every layer of the pass is there."""
        return self._layers == len(self._row_of)

    def note(self, layer: int, ids: Tensor, weights: Tensor) -> None:
        """Copy one layer: ids i32 and weights [rows, top_k]."""
        row = self._row_of[layer]
        if row == 0:
            self.rows, self._layers = ids.shape[0], 0
        if row != self._layers or ids.shape[0] != self.rows:
            return  # a layer is missing: the pass stays incomplete
        self.ids[row, : self.rows] = ids
        if self.weighs:
            self.weights[row, : self.rows] = weights
        self._layers += 1
