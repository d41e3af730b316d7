"""Verifying banks: every byte is read again and hashed again; what is wrong is named."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from blake3 import blake3

from k3d.errors import BankError
from k3d.experts.bank_file import Bank
from k3d.experts.bank_layout import HASH_BYTES, PREFIX, BankLayout
from k3d.experts.content_hash import content_hash
from k3d.staging.bank_names import PlacedBank, model_of
from k3d.staging.pace import Pace
from k3d.staging.progress import Progress

Part = Literal["manifest", "record"]
MOST_SUSPECTS = 32
READ_BYTES = 2 * 2**20
"""Read and hashed at once where records are smaller: enough to be worth letting go of."""


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a bank, and what became of it.

    `layer` and `expert` are None for a manifest that is damaged as a whole.
    """

    node: str
    path: Path
    part: Part
    reason: str
    layer: int | None = None
    expert: int | None = None
    repaired: bool = False
    unrepaired_because: str | None = None


@dataclass
class Examined:
    """What reading a bank, or some of its records, found."""

    bank: PlacedBank
    records: int = 0
    size_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)


def verify_bank(
    placed: PlacedBank,
    pace: Pace,
    progress: Progress,
    indexes: range | None = None,
) -> Examined:
    """Read and hash the records at `indexes`, by default all, and the manifest in any case."""
    examined = Examined(placed)
    try:
        bank = Bank(placed.path)
    except BankError as error:
        examined.damages = _manifest_damages(placed, error)
        progress.found += len(examined.damages)
        return examined
    try:
        if model_of(placed.path.name, bank.header) is None:
            reason = (
                f"bank {placed.path.name} is of model {bank.header.model_digest[:12]}, slice "
                f"{bank.header.slice_index + 1} of {bank.header.slice_count}: not as it is named"
            )
            examined.damages.append(Damage(placed.node, placed.path, "manifest", reason))
        which = range(len(bank.order)) if indexes is None else indexes
        for first, count in bank.manifest.layout.runs(which.start, which.stop, READ_BYTES):
            size = count * bank.header.record_bytes
            pace.take(size)
            for index, reason in damages(bank, first, count):
                examined.damages.append(
                    Damage(placed.node, placed.path, "record", reason, *bank.order[index])
                )
                progress.found += 1
            examined.records += count
            examined.size_bytes += size
            progress.add(size)
    finally:
        bank.close()
    return examined


def damages(bank: Bank, first: int, count: int) -> list[tuple[int, str]]:
    """Index and reason of what is wrong among neighbouring records; what cannot be read at once is
    read one by one."""
    try:
        records = memoryview(bank.read(first, count))
    except OSError as error:
        if count == 1:
            return [(first, f"cannot be read: {error.strerror}")]
        return [one for index in range(first, first + count) for one in damages(bank, index, 1)]
    whole = len(records) // bank.header.record_bytes
    found = bank.manifest.damaged(first, records[: whole * bank.header.record_bytes])
    wrong = [*found, *range(first + whole, first + count)]
    return [(index, "does not match its hash") for index in wrong]


def _manifest_damages(placed: PlacedBank, error: BankError) -> list[Damage]:
    """The damage of a manifest, and of the hashes in it that can be told to be wrong."""
    damages = [Damage(placed.node, placed.path, "manifest", error.message)]
    damages += [
        Damage(placed.node, placed.path, "manifest", "its hash is damaged, or its record is", *who)
        for who in _suspects(placed.path)
    ]
    return damages


def _suspects(path: Path) -> list[tuple[int, int]]:
    """Experts whose hash and record differ, in a bank whose header at least is whole."""
    try:
        with path.open("rb") as file:
            prefix = file.read(PREFIX.size)
            if len(prefix) < PREFIX.size:
                return []
            _, length, digest, _ = PREFIX.unpack(prefix)
            if length > path.stat().st_size:
                return []
            encoded = file.read(length)
            if blake3(encoded).digest() != digest:
                return []
            layout = BankLayout.decoded(encoded, path.name)
            hashes = file.read(layout.table_bytes)
            file.seek(layout.data_start)
            wrong = []
            for index in range(layout.count):
                record = file.read(layout.header.record_bytes)
                if content_hash(record) != hashes[index * HASH_BYTES :][:HASH_BYTES]:
                    wrong.append(layout.order[index])
                if len(wrong) == MOST_SUSPECTS:
                    break
            return wrong
    except (OSError, BankError):
        return []


def bank_bytes(placed: PlacedBank) -> int:
    """Size of a file; 0 where it cannot be told."""
    try:
        return placed.path.stat().st_size
    except OSError:
        return 0
