"""The slices that one spark is to hold under the map in force: their names and their bytes.

A slice's name is its hash. Where this Station has cut the spark's bank itself, its manifest has the
names and no record is read for them; else they come from hashing what would be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from k3d.errors import BankError
from k3d.experts.bank import slice_of
from k3d.experts.bank_file import Bank
from k3d.experts.bank_header import BankHeader
from k3d.experts.bank_layout import Manifest
from k3d.experts.content_hash import content_hash
from k3d.fabric.records import Name, Record
from k3d.placement.pod import SPARK_TIER
from k3d.station.map_in_force import MapInForce


class PodSlices:
    """Slice `index` of `count` of what the map in force gives the sparks.

    `bank` is the Station's, of whole experts; `banks` the folder where slices that were cut from it
    lie. Records are read and verified one at a time, as whoever iterates takes them.
    """

    def __init__(
        self, in_force: MapInForce, bank: Bank, banks: Path, index: int, count: int
    ) -> None:
        self._in_force = in_force
        self._bank = bank
        self._banks = banks
        self._index = index
        self._count = count

    def everything(self) -> Iterator[Record]:
        """Every slice with its bytes."""
        for slot, layer, expert in self._in_force.placement.experts_in(SPARK_TIER):
            piece = self._slice(layer, expert)
            yield Record(slot, layer, expert, content_hash(piece), piece)

    def names(self) -> Iterator[Name]:
        """In the order of layers and experts, which is that of a bank."""
        placement = self._in_force.placement
        manifests = self._manifests(placement.digest)
        for layer, expert, slot in sorted(
            (layer, expert, slot) for slot, layer, expert in placement.experts_in(SPARK_TIER)
        ):
            digest = _digest_in(manifests, layer, expert)
            if digest is None:
                digest = content_hash(self._slice(layer, expert))
            yield Name(slot, layer, expert, digest)

    def records(self, names: Iterable[Name]) -> Iterator[Record]:
        for slot, layer, expert, _ in names:
            piece = self._slice(layer, expert)
            yield Record(slot, layer, expert, content_hash(piece), piece)

    def _slice(self, layer: int, expert: int) -> memoryview:
        return slice_of(self._bank.record(layer, expert), self._index, self._count)

    def _manifests(self, map_digest: str) -> list[Manifest]:
        """Of this spark's banks that were cut here from the same sources; that of the map in force
        is the first."""
        found = []
        for path in sorted(self._banks.glob(f"*.{self._index + 1}of{self._count}.*.bank")):
            try:
                bank = Bank(path)
            except BankError:
                continue  # whoever verifies banks says what is wrong with it
            bank.close()
            if self._is_cut_from_ours(bank.header):
                found.append(bank.manifest)
        return sorted(found, key=lambda manifest: manifest.header.map_digest != map_digest)

    def _is_cut_from_ours(self, header: BankHeader) -> bool:
        ours = self._bank.header
        return (
            header.model_digest == ours.model_digest
            and (header.slice_index, header.slice_count) == (self._index, self._count)
            and header.shape == ours.shape
            and header.shards == ours.shards
            and header.recast_from == ours.recast_from
        )


class CutSlices:
    """The slices of the spark `node`, by whatever slicing is in force when they are asked for; none
    for a spark that holds no slice."""

    def __init__(self, in_force: MapInForce, bank: Bank, banks: Path, node: str) -> None:
        self._in_force = in_force
        self._bank = bank
        self._banks = banks
        self._node = node

    def everything(self) -> Iterable[Record]:
        """Every slice with its bytes."""
        slices = self._now()
        return () if slices is None else slices.everything()

    def names(self) -> Iterable[Name]:
        """In the order of layers and experts, which is that of a bank."""
        slices = self._now()
        return () if slices is None else slices.names()

    def records(self, names: Iterable[Name]) -> Iterable[Record]:
        slices = self._now()
        return () if slices is None else slices.records(names)

    def _now(self) -> PodSlices | None:
        slicing = self._in_force.slicing
        index = slicing.index(self._node)
        if index is None:
            return None
        return PodSlices(self._in_force, self._bank, self._banks, index, len(slicing.sparks))


def _digest_in(manifests: list[Manifest], layer: int, expert: int) -> bytes | None:
    for manifest in manifests:
        index = manifest.layout.order.find(layer, expert)
        if index is not None:
            return manifest.digest(index)
    return None
