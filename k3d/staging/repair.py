"""Repairing banks from their source: the same bank elsewhere, the whole bank, the checkpoint.

A record is put back only where its hash is the one in the manifest. A bank whose manifest is
damaged is replaced: by a copy of the Station's, or by building it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from k3d.errors import BankError, K3Error
from k3d.experts.bank import bank_path, slice_of
from k3d.experts.bank_file import Bank
from k3d.experts.bank_writer import BankWriter
from k3d.experts.record_repair import replace_record
from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint
from k3d.staging.bank_names import bank_suffix
from k3d.staging.build import build_pod
from k3d.staging.verify import Damage, Examined
from k3d.staging.wanted import WantedBank


class Repairer:
    """Repairs what was found in the banks of one home.

    `checkpoint` is the model's, None where it is not on this machine; `wanted` are the banks that
    can be built again from it.
    """

    def __init__(
        self, banks: Path, checkpoint: Checkpoint | None, wanted: list[WantedBank]
    ) -> None:
        self._banks = banks
        self._checkpoint = checkpoint
        self._wanted = {bank.path: bank for bank in wanted}
        self._sources: dict[bool, ExpertSource] = {}

    def repair(self, examined: Examined) -> list[Damage]:
        """The damages again, each with what became of it."""
        path = examined.bank.path
        if not examined.damages:
            return []
        if any(damage.part == "manifest" for damage in examined.damages):
            reason = _tried(lambda: self._restore(path))
            return [_outcome(damage, reason) for damage in examined.damages]
        return [
            _outcome(damage, _tried(lambda damage=damage: self._put_back(path, damage)))
            for damage in examined.damages
        ]

    def _put_back(self, path: Path, damage: Damage) -> None:
        assert damage.layer is not None
        assert damage.expert is not None
        bank = Bank(path)
        try:
            index = bank.order.find(damage.layer, damage.expert)
            assert index is not None
            record = self._record(bank, path, damage.layer, damage.expert)
            replace_record(path, bank.manifest, index, record)
        finally:
            bank.close()

    def _record(self, bank: Bank, path: Path, layer: int, expert: int) -> bytes | memoryview:
        header = bank.header
        for twin in (self._banks / path.name, self._whole(bank, path)):
            if twin != path and twin.exists():
                try:
                    return self._record_of(twin, bank, layer, expert)
                except BankError:  # damaged there too: the checkpoint is left
                    continue
        checkpoint = self._checkpoint
        if checkpoint is None:
            raise BankError(
                f"bank {path.name} has no source here: neither another bank nor the checkpoint",
                hint="send it again from the Station: k3ctl bank stage",
            )
        as_nvfp4 = header.recast_from is not None
        if as_nvfp4 not in self._sources:
            self._sources[as_nvfp4] = ExpertSource(checkpoint, as_nvfp4=as_nvfp4)
        # A checkpoint gives each tensor once, and this may be the second time.
        checkpoint.forget_reads()
        record = memoryview(self._sources[as_nvfp4].record(layer, expert))
        return slice_of(record, header.slice_index, header.slice_count)

    def _record_of(self, twin: Path, bank: Bank, layer: int, expert: int) -> memoryview:
        other = Bank(twin, model_digest=bank.header.model_digest)
        try:
            record = other.record(layer, expert)
        finally:
            other.close()
        if other.header.slice_count == bank.header.slice_count:
            return record
        return slice_of(record, bank.header.slice_index, bank.header.slice_count)

    def _whole(self, bank: Bank, path: Path) -> Path:
        """The Station's bank of whole experts that a slice was cut from."""
        name, header = path.name.removesuffix(bank_suffix(bank.header)), bank.header
        return bank_path(
            self._banks, name, header.model_digest, recast=header.recast_from is not None
        )

    def _restore(self, path: Path) -> None:
        """Replace a bank whose manifest is damaged."""
        twin = self._banks / path.name
        if twin != path and twin.exists():
            _copy(twin, path)
            return
        wanted = self._wanted.get(path)
        if wanted is None or self._checkpoint is None:
            raise BankError(
                f"bank {path.name} cannot be built again here: no pod at hand wants it",
                hint="name the pod and its placement, or send the bank again: k3ctl bank stage",
            )
        self._checkpoint.forget_reads()
        as_nvfp4 = wanted.header.recast_from is not None
        ready = [b for b in self._wanted.values() if not b.is_slice and b.state() == "ready"]
        build_pod(self._checkpoint, [*ready, wanted], as_nvfp4=as_nvfp4)


def _copy(source: Path, path: Path) -> None:
    bank = Bank(source)
    try:
        with BankWriter(path, bank.header, bank.manifest) as writer:
            for index in sorted(writer.missing):
                writer.put(index, bank.record(*bank.order[index]))
            writer.publish()
    finally:
        bank.close()


def _tried(repair: Callable[[], None]) -> K3Error | None:
    try:
        repair()
    except K3Error as error:
        return error
    return None


def _outcome(damage: Damage, error: K3Error | None) -> Damage:
    if error is None:
        return replace(damage, repaired=True)
    return replace(damage, unrepaired_because=str(error))
