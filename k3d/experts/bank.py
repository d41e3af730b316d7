"""The Station's bank: every expert whole, built from the checkpoint when it is missing.

It is one use of the format in bank_file.py; staging/ cuts slices in the same format.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from k3d.errors import BankError, CheckpointError, K3Error
from k3d.experts.bank_file import Bank, EarlierBank
from k3d.experts.bank_header import REBUILD, SEGMENT_BYTES, BankHeader
from k3d.experts.bank_writer import BankWriter
from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint
from k3d.safetensors_header import TensorEntry

__all__ = ["Bank", "bank_path", "build_bank", "open_or_build", "slice_of", "station_source"]


def bank_path(folder: Path, model_name: str, model_digest: str, *, recast: bool = False) -> Path:
    return folder / f"{model_name}-{model_digest[:12]}{'.nvfp4' if recast else ''}.bank"


def station_source(checkpoint: Checkpoint, folder: Path) -> ExpertSource:
    """The experts as the Station serves them: recast if such a bank is staged, else as released."""
    staged = bank_path(folder, checkpoint.folder.name, checkpoint.digest, recast=True)
    return ExpertSource(checkpoint, as_nvfp4=staged.exists())


def whole_header(source: ExpertSource) -> BankHeader:
    """The header of a bank of whole experts, all of them."""
    return BankHeader(
        model_digest=source.checkpoint.digest,
        slice_index=0,
        slice_count=1,
        shape=source.shape,
        record_bytes=source.shape.record_bytes,
        shards=shard_facts(source.checkpoint),
        weights=dict(source.checkpoint.digests),
        recast_from=source.recast_from,
        segment_bytes=SEGMENT_BYTES,
    )


def build_bank(
    source: ExpertSource, path: Path, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write a bank of whole experts, one record in memory at a time; atomic.

    Goes on with what a killed build left; an error leaves nothing. Waits for another process that
    writes the same bank.
    """
    with BankWriter(path, whole_header(source), wait=True) as writer:
        try:
            if writer.waited and _is_there(path, writer.layout.header):
                writer.discard()
                return
            order, missing = writer.layout.order, sorted(writer.missing)
            done = writer.kept
            for index in missing:
                writer.put(index, source.record(*order[index]))
                done += 1
                if progress is not None:
                    progress(done, len(order))
            writer.publish()
        except K3Error:
            writer.discard()
            raise


def _is_there(path: Path, header: BankHeader) -> bool:
    """Whether whoever was waited for has published this very bank."""
    try:
        bank = Bank(path)
    except BankError:
        return False
    bank.close()
    return bank.header == header


def open_or_build(
    source: ExpertSource, path: Path, progress: Callable[[int, int], None] | None = None
) -> Bank:
    """The bank at `path`, built first if it is absent; its shape must be the checkpoint's.

    To be called when the weights outside the experts have been read: they must be those that the
    bank remembers. Raises BankError for a bank, CheckpointError for a checkpoint that is damaged.
    """
    bank = _open_current(source, path)
    if bank is None:
        build_bank(source, path, progress)
        bank = Bank(path, model_digest=source.checkpoint.digest)
    source.skip()
    if bank.shape != source.shape:
        bank.close()
        raise BankError(f"bank {path.name} is cut for another expert shape", hint=REBUILD)
    return bank


def _open_current(source: ExpertSource, path: Path) -> Bank | None:
    """The bank that is there, unless it is of an earlier format or of other shards."""
    if not path.exists():
        return None
    try:
        bank = Bank(path, model_digest=source.checkpoint.digest)
    except EarlierBank:
        return None
    remembered, found = bank.header.weights, source.checkpoint.digests
    if bank.header.shards != shard_facts(source.checkpoint) or remembered.keys() != found.keys():
        bank.close()  # the shards were fetched again or repaired since
        return None
    changed = [name for name in sorted(found) if found[name] != remembered[name]]
    if changed:
        bank.close()
        raise _decayed(source.checkpoint.entry(changed[0]), len(changed))
    return bank


def _decayed(entry: TensorEntry, count: int) -> CheckpointError:
    more = f", and {count - 1} more have" if count > 1 else ""
    return CheckpointError(
        f"tensor {entry.name} of shard {entry.path.name} has changed since its bank was built"
        f"{more}, though the file's time has not: it is damaged",
        hint="fetch the shard again",
    )


def shard_facts(checkpoint: Checkpoint) -> tuple[tuple[str, int, int], ...]:
    """Name, bytes and mtime_ns of every shard."""
    found = [(shard.name, shard.stat()) for shard in checkpoint.shards]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def slice_of(record: memoryview, slice_index: int, slice_count: int) -> memoryview:
    """The bytes of one slice; a view, not a copy."""
    size = len(record) // slice_count
    return record[slice_index * size : (slice_index + 1) * size]
