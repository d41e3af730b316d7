"""Routed experts of a pod: every tier starts at once, partials are summed exactly.

The map in force is one table; a layer's ids are split by it into what each tier is asked for.
A tier answers with what it served, and a layer is done only when every id was served once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from k3d.errors import ConfigError, K3Error
from k3d.experts.dispatch import DispatchLayout, as_bytes
from k3d.experts.hop_log import HopLog
from k3d.experts.routing_copy import RoutingCopy
from k3d.experts.shape import ExpertShape
from k3d.experts.worker import ABSENT, SliceWorker


@dataclass(frozen=True)
class Answer:
    """What one node of a tier did: served i32 [rows, top_k], partial i64 [rows, latent]."""

    served: Tensor
    partial: Tensor
    compute_ns: int


class Tier(Protocol):
    """A place experts live."""

    name: str
    remote: bool

    def begin(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
        """Ask for a layer's experts; ids are ABSENT where another tier serves."""
        ...

    def finish(self) -> Sequence[Answer]:
        """One answer a node; each must have served every id that was asked for."""
        ...

    def abandon(self) -> None:
        """Forget what was begun and not finished."""
        ...


class PartialFrame(Protocol):
    """The part of a PARTIAL frame that a tier reads."""

    @property
    def payload(self) -> memoryview: ...

    @property
    def compute_ns(self) -> int: ...


class Hop(Protocol):
    """The Station's end of one spark, as the token path sees it."""

    def begin(self, layer: int, rows: int, parts: Sequence[memoryview]) -> None:
        """Send a dispatch. Raises NodeLost."""
        ...

    def finish(self) -> PartialFrame:
        """Its partial, valid until the next begin. Raises NodeLost."""
        ...

    def settle(self) -> None:
        """Drop the answer of a dispatch that will not be finished."""
        ...


class LocalTier:
    """A tier in this process's own memory: whole experts."""

    remote = False

    def __init__(self, name: str, worker: SliceWorker) -> None:
        self.name = name
        self.worker = worker
        self._answers: tuple[Answer, ...] = ()

    def begin(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
        started = time.perf_counter_ns()
        served, partial = self.worker.serve(layer, ids, weights, x)
        self._answers = (Answer(served, partial, time.perf_counter_ns() - started),)

    def finish(self) -> Sequence[Answer]:
        return self._answers

    def abandon(self) -> None:
        self._answers = ()


class SparkTier:
    """The sparks together: each holds one slice of every expert in the tier."""

    remote = True

    def __init__(
        self, hops: Sequence[Hop], shape: ExpertShape, dtype: torch.dtype, max_rows: int
    ) -> None:
        self.name = "spark"
        self._hops = hops
        self._layout = DispatchLayout(shape, dtype)
        self._rows = 0
        # Persistent send buffers: one dispatch goes to every spark from here.
        self._ids = torch.empty(max_rows, shape.top_k, dtype=torch.int32)
        self._weights = torch.empty(max_rows, shape.top_k, dtype=self._layout.weights_dtype)
        self._x = torch.empty(max_rows, shape.latent, dtype=dtype)

    def turn_to(self, hops: Sequence[Hop]) -> None:
        """Other sparks hold the slices from now on; between two passes."""
        self._hops = hops

    def begin(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
        self._rows = rows = ids.shape[0]
        buffers = (self._ids[:rows], self._weights[:rows], self._x[:rows])
        for buffer, values in zip(buffers, (ids, weights, x), strict=True):
            buffer.copy_(values)
        parts = [as_bytes(buffer) for buffer in buffers]
        for hop in self._hops:
            hop.begin(layer, rows, parts)

    def finish(self) -> Sequence[Answer]:
        answers = []
        for hop in self._hops:
            frame = hop.finish()
            served, partial = self._layout.read_partial(frame.payload, self._rows)
            answers.append(Answer(served, partial, frame.compute_ns))
        return answers

    def abandon(self) -> None:
        for hop in self._hops:
            hop.settle()


@dataclass(frozen=True)
class _Pending:
    tier: int
    asked: Tensor
    started_ns: int


class ExpertTiers:
    """All tiers of the pod under the map in force; implements the model's RoutedExperts."""

    def __init__(
        self, shape: ExpertShape, tiers: Sequence[Tier], table: Tensor, log: HopLog
    ) -> None:
        """table i8 [layers, experts]: index into `tiers` of the tier that holds the expert."""
        self.log = log
        self.routing: RoutingCopy | None = None  # where a pass's routing is copied, if anywhere
        self._shape = shape
        self._tiers = tiers
        # Remote tiers first: their hops run while local tiers compute.
        self._order = sorted(range(len(tiers)), key=lambda index: not tiers[index].remote)
        self._layer = 0
        self._pending: list[_Pending] = []
        self.turn_to(table)

    @property
    def tiers(self) -> Sequence[Tier]:
        return self._tiers

    def turn_to(self, table: Tensor) -> None:
        """Split layers by another map from now on; between two passes. Raises ConfigError."""
        placed = table[list(self._shape.layers)]
        if int(placed.min()) < 0 or int(placed.max()) >= len(self._tiers):
            raise ConfigError("the placement map leaves experts without a tier")
        self._table = table
        self.log.turn()

    def start(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
        if self.routing is not None:
            self.routing.note(layer, ids, weights)
        homes = self._table[layer][ids.long()]  # [rows, top_k]
        self._layer = layer
        self._pending.clear()
        for index in self._order:
            here = homes == index
            if not here.any():
                continue
            asked = torch.where(here, ids, ABSENT)
            self._pending.append(_Pending(index, asked, time.perf_counter_ns()))
            self._tiers[index].begin(layer, asked, weights, x)

    def finish(self) -> Tensor:
        total = torch.zeros((), dtype=torch.int64)
        for pending in self._pending:
            tier = self._tiers[pending.tier]
            answers = tier.finish()
            for answer in answers:
                if not torch.equal(answer.served, pending.asked):
                    raise K3Error(
                        f"tier {tier.name} did not serve layer {self._layer} as it was asked",
                        hint="its slots and the map in force disagree; restart the pod",
                    )
                total = total + answer.partial
            self._note(pending, tier, max(answer.compute_ns for answer in answers))
        if not self._pending:
            raise K3Error(f"no tier holds the experts chosen in layer {self._layer}")
        return total.double() * 2.0 ** self._shape.grid_exponent(self._layer)

    def abandon(self) -> None:
        self._pending.clear()
        for tier in self._tiers:
            tier.abandon()

    def _note(self, pending: _Pending, tier: Tier, compute_ns: int) -> None:
        elapsed = time.perf_counter_ns() - pending.started_ns if tier.remote else compute_ns
        rows = pending.asked.shape[0]
        self.log.note(pending.tier, elapsed, compute_ns, rows, int((pending.asked != ABSENT).sum()))
