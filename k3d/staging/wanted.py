"""The banks that a pod needs under a placement: the Station's, and one slice a spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from k3d.errors import BankError
from k3d.experts.bank import shard_facts
from k3d.experts.bank_file import Bank, EarlierBank
from k3d.experts.bank_header import SEGMENT_BYTES, BankHeader, held_mask
from k3d.experts.bank_layout import HASH_BYTES, BankLayout
from k3d.experts.shape import ExpertShape
from k3d.experts.source import planned_shape
from k3d.model.checkpoint import EXPERTS, Checkpoint
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER, PodDescription
from k3d.staging.bank_names import bank_name

State = Literal["ready", "other", "damaged", "begun", "missing"]


@dataclass(frozen=True)
class WantedBank:
    """A bank file that should be. `node` is who computes from it."""

    node: str
    path: Path
    header: BankHeader

    @property
    def layout(self) -> BankLayout:
        return BankLayout.of(self.header)

    @property
    def is_slice(self) -> bool:
        return self.header.map_digest is not None

    def state(self) -> State:
        """What is there now; "other" is a whole bank of other sources, or of an earlier format."""
        try:
            bank = Bank(self.path)
        except EarlierBank:
            return "other"
        except BankError:
            if self.path.exists():
                return "damaged"
            begun = self.path.with_name(f".{self.path.name}.partial")
            return "begun" if begun.exists() else "missing"
        bank.close()
        return "ready" if _alike(bank.header, self.header) else "other"

    def with_facts(self, shape: ExpertShape, weights: dict[str, bytes]) -> WantedBank:
        """With what takes reading the checkpoint: the grid, and the other weights' hashes."""
        header = msgspec.structs.replace(
            self.header, shape=shape, weights={} if self.is_slice else weights
        )
        return replace(self, header=header)


def wanted_banks(
    checkpoint: Checkpoint,
    pod: PodDescription,
    placement: PlacementMap,
    banks: Path,
    *,
    as_nvfp4: bool,
) -> list[WantedBank]:
    """The banks of a pod, the Station's first, sized right but with facts still to be read."""
    shape = planned_shape(checkpoint, as_nvfp4=as_nvfp4)
    recast = shape.format != planned_shape(checkpoint).format
    common = BankHeader(
        model_digest=checkpoint.digest,
        slice_index=0,
        slice_count=1,
        shape=shape,
        record_bytes=shape.record_bytes,
        shards=shard_facts(checkpoint),
        recast_from="mxfp4" if recast else None,
        segment_bytes=SEGMENT_BYTES,
    )
    name = checkpoint.folder.name
    others = {n: bytes(HASH_BYTES) for n in checkpoint.names() if EXPERTS not in n}
    header = msgspec.structs.replace(common, weights=others)
    found = [WantedBank(pod.station.name, banks / bank_name(name, header), header)]
    experts = [(layer, expert) for _, layer, expert in placement.experts_in(SPARK_TIER)]
    if not experts:
        return found
    held = held_mask(shape, experts)
    for index, spark in enumerate(pod.sparks):
        header = msgspec.structs.replace(
            common,
            slice_index=index,
            slice_count=pod.slice_count,
            record_bytes=shape.slice_bytes(pod.slice_count),
            map_digest=placement.digest,
            held=held,
        )
        found.append(WantedBank(spark.name, banks / bank_name(name, header), header))
    return found


def _alike(found: BankHeader, wanted: BankHeader) -> bool:
    """Whether two headers differ in no more than what planning does not read."""
    shape = replace(wanted.shape, grid_exponents=found.shape.grid_exponents)
    if found.weights.keys() != wanted.weights.keys():
        return False
    return found == msgspec.structs.replace(
        wanted, shape=shape, weights=found.weights, segment_bytes=found.segment_bytes
    )
