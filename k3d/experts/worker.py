"""A worker: the experts of one tier on one node, whole or as a slice, and what it computes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from k3_kernels import ExpertWeights, expert_contributions
from torch import Tensor

from k3d.errors import BankError
from k3d.experts.content_hash import content_hash
from k3d.experts.dispatch import as_bytes
from k3d.experts.record import decode_atoms
from k3d.experts.shape import ExpertShape

ABSENT = -1
DECODED_CACHE_BYTES = 64 * 2**20
PAIRS_AT_ONCE = 64
"""At most this many (row, expert) pairs are computed side by side, each with a copy of its
expert: for a few rows, a call an expert costs more than the copies."""


@dataclass(frozen=True)
class _Group:
    """rows, places (in the row's ids) and experts, i64 or i32 [experts, rows of each]."""

    rows: Tensor
    places: Tensor
    experts: Tensor
    weights: ExpertWeights


class SliceWorker:
    """Slots of packed expert slices and a bounded cache of decoded ones.

    Memory is `slots_used` packed slices plus `cache_bytes`; the packed bytes are the truth.
    After the first `commit` what is loaded is staged: it goes to slots that are not in use, and is
    served beside the rest until `settle` keeps it or `unstage` drops it. `load` may then run in
    another thread than `serve`; everything else belongs to the one that serves.
    """

    def __init__(
        self,
        shape: ExpertShape,
        slots: int,
        slice_index: int = 0,
        slice_count: int = 1,
        *,
        cache_bytes: int = DECODED_CACHE_BYTES,
        name: str = "worker",
    ) -> None:
        self.shape = shape
        self.slots = slots
        self.slice_index = slice_index
        self.slice_count = slice_count
        self.name = name
        self.epochs: tuple[int, ...] = ()
        self._slice_bytes = shape.slice_bytes(slice_count)
        try:
            self._packed = torch.empty(slots, self._slice_bytes, dtype=torch.uint8)
        except (RuntimeError, TypeError, OverflowError):
            raise BankError(
                f"{name}: {slots} slots of {self._slice_bytes} bytes are more memory than there is",
                hint="give the tier fewer slots in the pod description",
            ) from None
        self._slot_of: dict[tuple[int, int], int] = {}  # (layer, expert) -> slot
        self._held: dict[int, tuple[int, int]] = {}  # and back
        self._second: dict[tuple[int, int], int] = {}  # slot of another copy of the same expert
        self._staged: set[int] = set()  # slots loaded since the epoch in force was committed
        self._decoded: OrderedDict[int, ExpertWeights] = OrderedDict()
        self._ahead: dict[int, ExpertWeights] = {}  # of staged slots, before they first serve
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0

    @property
    def loaded(self) -> int:
        return len(self._held)

    @property
    def staged(self) -> int:
        """Slots loaded since the epoch in force was committed."""
        return len(self._staged)

    @property
    def packed_bytes(self) -> int:
        """Bytes of expert slices served."""
        return self.loaded * self._slice_bytes

    def load(self, slot: int, layer: int, expert: int, record: memoryview, digest: bytes) -> None:
        """Put one slice in a slot; bytes that do not match their blake3 digest are refused."""
        where = f"{self.name}: layer {layer} expert {expert}"
        if len(record) != self._slice_bytes:
            raise BankError(f"{where}: a slice of {len(record)} bytes, not {self._slice_bytes}")
        if content_hash(record) != digest:
            raise BankError(
                f"{where}: the slice does not match its hash", hint="it was damaged on the way"
            )
        self._make_room(slot, layer, expert)
        self._packed[slot].numpy()[:] = np.frombuffer(record, dtype=np.uint8)
        self._keep(slot, layer, expert)

    def fill(self, slot: int, layer: int, expert: int, read: Callable[[memoryview], bool]) -> bool:
        """Put one slice in a slot by letting `read` write it there, which says whether it did and
        the bytes are right; else the slot stays empty."""
        self._make_room(slot, layer, expert)
        if not read(as_bytes(self._packed[slot])):
            return False
        self._keep(slot, layer, expert)
        return True

    def _make_room(self, slot: int, layer: int, expert: int) -> None:
        """Empty a slot for an expert. Raises BankError unless it is a slot that can be had."""
        where = f"{self.name}: layer {layer} expert {expert}"
        if not 0 <= slot < self.slots:
            raise BankError(f"{where}: slot {slot} of {self.slots}")
        if layer not in self.shape.layers or not 0 <= expert < self.shape.experts:
            raise BankError(f"{where}: no such expert in this model")
        if self.epochs and slot in self._held and slot not in self._staged:
            raise BankError(
                f"{where}: slot {slot} serves another expert", hint="the swap's plan is stale"
            )
        self._empty(slot)

    def _keep(self, slot: int, layer: int, expert: int) -> None:
        self._place(slot, (layer, expert))
        if self.epochs:
            self._decode_ahead(slot)

    def commit(self, epoch: int) -> None:
        """Everything that `epoch` needs is there: serve it too."""
        if epoch not in self.epochs:
            self.epochs = (*self.epochs, epoch)

    def settle(self, epoch: int, slots: Sequence[int] = ()) -> None:
        """Serve only `epoch` from now on; `slots` held what it does not need."""
        self.epochs = (epoch,)
        self._staged.clear()
        for slot in slots:
            self._empty(slot)

    def unstage(self) -> None:
        """Drop what was staged; only the epoch in force is served."""
        self.epochs = self.epochs[:1]
        for slot in sorted(self._staged):
            self._empty(slot)
        self._staged.clear()

    def reset(self) -> None:
        """Forget every slice."""
        self._slot_of.clear()
        self._held.clear()
        self._second.clear()
        self._staged.clear()
        self._decoded.clear()
        self._ahead.clear()
        self._cached_bytes = 0
        self.epochs = ()

    def serve(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute what is asked: ids i32 [rows, top_k], ABSENT where another tier serves.

        Returns served ids i32 [rows, top_k] (what was really computed) and the partial
        i64 [rows, latent].
        """
        partial = torch.zeros(x.shape[0], self.shape.latent, dtype=torch.int64)
        served = torch.full_like(ids, ABSENT)
        for group in self._groups(layer, ids):
            rows, places = group.rows, group.places
            contributions = expert_contributions(
                x[rows],
                weights[rows, places],
                group.weights,
                beta=self.shape.situ_beta,
                linear_beta=self.shape.situ_linear_beta,
                grid_exponent=self.shape.grid_exponent(layer),
            )
            partial.index_add_(0, rows.view(-1), contributions.view(-1, self.shape.latent))
            served[rows, places] = group.experts
        return served, partial

    def _groups(self, layer: int, ids: Tensor) -> Iterator[_Group]:
        """What to compute in one call each: a few (row, expert) pairs side by side, or, in a
        chunk, an expert with all its rows, so that each expert is read once."""
        asked = ids != ABSENT
        rows, places = torch.nonzero(asked, as_tuple=True)
        experts = ids[rows, places]
        if len(rows) <= PAIRS_AT_ONCE:
            if len(rows):
                found = [self._weights(self._slot(layer, e)) for e in experts.tolist()]
                column = (rows.unsqueeze(1), places.unsqueeze(1), experts.unsqueeze(1))
                yield _Group(*column, ExpertWeights.stacked(found))
            return
        for expert in torch.unique(experts).tolist():
            mine = experts == expert
            row = (rows[mine].unsqueeze(0), places[mine].unsqueeze(0), experts[mine].unsqueeze(0))
            yield _Group(*row, self._weights(self._slot(layer, expert)))

    def _slot(self, layer: int, expert: int) -> int:
        slot = self._slot_of.get((layer, expert))
        if slot is None:
            raise BankError(
                f"{self.name} is asked for layer {layer} expert {expert}, which it does not hold",
                hint="its slots and the map in force disagree; reload it",
            )
        return slot

    def _weights(self, slot: int) -> ExpertWeights:
        """Decoded weights of a slot, least recently used ones given up beyond the budget."""
        found = self._decoded.get(slot)
        if found is not None:
            self._decoded.move_to_end(slot)
            return found
        decoded = self._ahead.pop(slot, None) or decode_atoms(self.shape, self._packed[slot])
        self._decoded[slot] = decoded
        self._cached_bytes += decoded.size_bytes
        while self._cached_bytes > self._cache_bytes and len(self._decoded) > 1:
            _, dropped = self._decoded.popitem(last=False)
            self._cached_bytes -= dropped.size_bytes
        return decoded

    def _decode_ahead(self, slot: int) -> None:
        """Decode a staged slice now, while the cache has room: the pass after a turn would wait
        for all of them."""
        taken = self._cached_bytes + sum(each.size_bytes for each in list(self._ahead.values()))
        if taken < self._cache_bytes:
            self._ahead[slot] = decode_atoms(self.shape, self._packed[slot])

    def _place(self, slot: int, expert: tuple[int, int]) -> None:
        """Note what a slot holds. A staged copy serves once the first copy is given up."""
        first = self._slot_of.get(expert)
        if first is not None and self.epochs:
            self._empty(self._second.get(expert, ABSENT))
            self._second[expert] = slot
        else:
            self._empty(ABSENT if first is None else first)
            self._slot_of[expert] = slot
        self._held[slot] = expert
        if self.epochs:
            self._staged.add(slot)

    def _empty(self, slot: int) -> None:
        """Forget what a slot holds, if it holds anything."""
        held = self._held.pop(slot, None)
        if held is not None:
            second = self._second.pop(held, None)
            if self._slot_of[held] == slot:
                del self._slot_of[held]
                if second is not None:
                    self._slot_of[held] = second
        self._ahead.pop(slot, None)
        dropped = self._decoded.pop(slot, None)
        if dropped is not None:
            self._cached_bytes -= dropped.size_bytes
