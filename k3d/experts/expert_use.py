"""How often the router chose each expert since the start, counted after every pass.

Only rows that were committed count: of a prompt, and those that became tokens. Drafts that were
not accepted are no traffic.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from k3d.experts.routing_copy import RoutingCopy
from k3d.experts.shape import ExpertShape


class ExpertUse:
    """Counts int64 [MoE layers, experts]; one row adds `top_k` to every layer.

    The engine's thread counts, anyone may take a snapshot.
    """

    def __init__(self, shape: ExpertShape, max_rows: int) -> None:
        self.layers = shape.layers
        """Model layer numbers of the counts' rows."""
        self.routing = RoutingCopy(shape, max_rows)
        """What the pass under way fills."""
        self.rows = 0
        """Rows counted: tokens that went through the experts."""
        self._counts = np.zeros((len(shape.layers), shape.experts), dtype=np.int64)
        self._flat = self._counts.reshape(-1)
        firsts = np.arange(len(shape.layers), dtype=np.int64) * shape.experts
        self._firsts = firsts[:, None, None]
        self._ids = self.routing.ids.numpy()

    def note(self, spans: Iterable[tuple[int, int]], rows: int) -> None:
        """Count a pass of `rows` rows, of which those in `spans` (first, count) were committed. A
        pass whose routing is not complete is left out."""
        copy = self.routing
        if not copy.complete or copy.rows != rows:
            return
        kept = [row for first, count in spans for row in range(first, first + count)]
        if not kept:
            return
        ids = self._ids[:, :rows] if len(kept) == rows else self._ids[:, kept]
        np.add.at(self._flat, (ids + self._firsts).reshape(-1), 1)
        self.rows += len(kept)

    def snapshot(self) -> np.ndarray:
        """A copy of the counts. A pass that is being counted may be there in part."""
        return self._counts.copy()
