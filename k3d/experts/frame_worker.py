"""A worker behind frames: what a spark's daemon calls with payloads, bytes in and bytes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import torch

from k3d.errors import FabricError, HandshakeRefused
from k3d.experts.dispatch import DTYPES, DispatchLayout, as_bytes
from k3d.experts.shape import ExpertShape
from k3d.experts.staged_slices import Served, StagedSlices
from k3d.experts.worker import SliceWorker
from k3d.fabric.facts import Facts, ShapeNumber, StagedBank
from k3d.fabric.records import Name


class FrameWorker:
    """One slice of a tier's experts, driven by what LOAD, FILL, COMMIT and DISPATCH carry.

    `banks` is where this node's banks lie; None for one that has none.
    """

    def __init__(
        self,
        shape: ExpertShape,
        slots: int,
        slice_index: int,
        slice_count: int,
        dtype: str,
        name: str,
        banks: Path | None = None,
    ) -> None:
        self._staged = None if banks is None else StagedSlices(banks, name)
        self.bank: StagedBank | None = None
        self._worker = SliceWorker(shape, slots, slice_index, slice_count, name=name)
        self._layout = DispatchLayout(shape, DTYPES[dtype])

    @property
    def epochs(self) -> tuple[int, ...]:
        return self._worker.epochs

    @property
    def loaded(self) -> int:
        return self._worker.loaded

    @property
    def staged(self) -> int:
        return self._worker.staged

    @property
    def packed_bytes(self) -> int:
        return self._worker.packed_bytes

    def load(self, slot: int, layer: int, expert: int, record: memoryview, digest: bytes) -> None:
        self._worker.load(slot, layer, expert, record, digest)
        if self._staged is not None:
            self._staged.mend(layer, expert, digest, record)

    def look_for_banks(self, station: Facts) -> None:
        worker, staged = self._worker, self._staged
        if staged is not None:
            map_digest = (station.placement_digest or "").partition(".")[0]
            served = Served(
                station.model_digest or "", worker.slice_index, worker.slice_count,
                worker.shape, map_digest,
            )  # fmt: skip
            self.bank = staged.look(served)

    def fill(self, names: Iterable[Name]) -> list[int]:
        staged = self._staged
        if staged is None:
            return [index for index, _ in enumerate(names)]
        lacking = []
        for index, (slot, layer, expert, digest) in enumerate(names):
            if not self._worker.fill(
                slot, layer, expert, partial(staged.read, layer, expert, digest)
            ):
                lacking.append(index)
        staged.drop_pages()
        return lacking

    def commit(self, epoch: int) -> None:
        self._worker.commit(epoch)
        if self._staged is not None:
            self._staged.close()

    def settle(self, epoch: int, slots: Sequence[int]) -> None:
        self._worker.settle(epoch, slots)

    def unstage(self) -> None:
        self._worker.unstage()
        if self._staged is not None:
            self._staged.close()

    def reset(self) -> None:
        self._worker.reset()

    def serve(self, epoch: int, layer: int, payload: memoryview, rows: int) -> Sequence[memoryview]:
        """Parts of the PARTIAL payload; a dispatch of another epoch is refused."""
        if epoch not in self._worker.epochs:
            held = " and ".join(map(str, self._worker.epochs)) or "none"
            raise FabricError(
                f"{self._worker.name} holds epoch {held}; the dispatch is of {epoch}",
                hint="the Station reloads the spark",
            )
        if layer not in self._worker.shape.layers:
            raise FabricError(f"a dispatch for layer {layer}, which has no routed experts")
        ids, weights, x = self._layout.read_dispatch(payload, rows)
        with torch.inference_mode():
            served, partial = self._worker.serve(layer, ids, weights, x)
        return as_bytes(served), as_bytes(partial)


def shape_facts(shape: ExpertShape) -> dict[str, ShapeNumber]:
    """A shape as plain values, for a handshake."""
    return msgspec.to_builtins(shape)


def worker_with_banks(banks: Path) -> Callable[[Facts], FrameWorker]:
    """`worker_from_facts` for a node whose banks lie in `banks`."""
    return lambda facts: worker_from_facts(facts, banks)


def worker_from_facts(facts: Facts, banks: Path | None = None) -> FrameWorker:
    """The worker that a Station's facts ask for. Raises HandshakeRefused for incomplete ones."""
    try:
        shape = msgspec.convert(facts.shape, ExpertShape)
    except msgspec.ValidationError as error:
        raise HandshakeRefused(f"{facts.node} sent an expert shape that is none: {error}") from None
    index, count, slots, dtype = (
        facts.slice_index, facts.slice_count, facts.slots, facts.dtype
    )  # fmt: skip
    if index is None or count is None or slots is None or dtype not in DTYPES:
        raise HandshakeRefused(f"{facts.node} did not say which slice, slots and dtype to serve")
    torch.set_num_threads(1)
    return FrameWorker(shape, slots, index, count, dtype, facts.calling or "spark", banks)
