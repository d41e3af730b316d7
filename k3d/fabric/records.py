"""Payloads of the frames that fill and empty slots; the frame's `rows` says how many of each.

LOAD: slices of expert records, all of one size, each behind the header of `RECORD_LAYOUT`. Of an
epoch later than the one in force they are staged: put in free slots and served beside the rest.
FILL: the same headers alone, of slices that the spark may have in a bank of its own. The FILLED
that answers has a bit for each, set where it does not have those very bytes: LOAD brings them then.
RETIRE: slots, u32 each. From then on only the frame's epoch is served. If that was staged, the
slots held what it does not need; if it was in force already, what was staged is dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from k3d.errors import FabricError
from k3d.fabric.frames import Buffer

RECORD_LAYOUT: tuple[tuple[str, str], ...] = (
    ("slot", "I"),
    ("layer", "H"),
    ("expert", "H"),
    ("digest", "32s"),  # blake3 of the slice's bytes
)
RECORD_HEADER = struct.Struct("<" + "".join(code for _, code in RECORD_LAYOUT))
DIGEST_BYTES = 32
BATCH_BYTES = 1024 * 1024
"""Size of a LOAD frame that is worth no larger one: what it takes stays resident on both ends."""
FILL_BYTES = 32 * 1024 * 1024
"""Slices that one FILL asks for: a slow disk must give them before the Station loses patience."""
MOST_NAMES = 8192
"""In one FILL: their bits fit a control frame."""
SLOT_BYTES = 4


class Name(NamedTuple):
    """What a Record is but for its bytes."""

    slot: int
    layer: int
    expert: int
    digest: bytes


class Record(NamedTuple):
    """One slice of one expert and the slot it goes to."""

    slot: int
    layer: int
    expert: int
    digest: bytes
    slice_bytes: Buffer


class Batch(NamedTuple):
    """Parts of one LOAD payload and the number of records in them."""

    count: int
    parts: list[Buffer]


def batches(records: Iterable[Record], slice_bytes: int, limit_bytes: int) -> Iterator[Batch]:
    """Group `records`, each of `slice_bytes`, into LOAD payloads of at most `limit_bytes`.

    Raises FabricError for a record of another size or one that does not fit a frame alone.
    """
    each_bytes = RECORD_HEADER.size + slice_bytes
    if each_bytes > limit_bytes:
        raise FabricError(
            f"an expert slice of {slice_bytes} bytes does not fit a frame of {limit_bytes} bytes",
            hint="raise capacity_bytes on both ends",
        )
    most = max(1, min(limit_bytes, BATCH_BYTES) // each_bytes)
    parts: list[Buffer] = []
    for record in records:
        found_bytes = memoryview(record.slice_bytes).nbytes
        if found_bytes != slice_bytes or len(record.digest) != DIGEST_BYTES:
            raise FabricError(
                f"layer {record.layer} expert {record.expert} comes with {found_bytes} bytes and "
                f"a digest of {len(record.digest)}, not {slice_bytes} and {DIGEST_BYTES}"
            )
        header = RECORD_HEADER.pack(record.slot, record.layer, record.expert, record.digest)
        parts += (header, record.slice_bytes)
        if len(parts) == 2 * most:
            yield Batch(most, parts)
            parts = []
    if parts:
        yield Batch(len(parts) // 2, parts)


def read_records(payload: memoryview, count: int, slice_bytes: int, peer: str) -> Iterator[Record]:
    """The records of a LOAD payload, as views into it.

    Raises FabricError when the payload is not `count` records of `slice_bytes`.
    """
    each_bytes = RECORD_HEADER.size + slice_bytes
    if len(payload) != count * each_bytes:
        raise FabricError(
            f"{peer} sent {len(payload)} bytes as {count} expert slices of {slice_bytes} bytes"
        )
    for start in range(0, len(payload), each_bytes):
        slot, layer, expert, digest = RECORD_HEADER.unpack_from(payload, start)
        body = payload[start + RECORD_HEADER.size : start + each_bytes]
        yield Record(slot, layer, expert, digest, body)


def name_batches(
    names: Iterable[Name], slice_bytes: int, most: int = MOST_NAMES
) -> Iterator[list[Name]]:
    """Group names of slices of `slice_bytes` as FILL frames carry them, at most `most` in each."""
    most = max(1, min(most, MOST_NAMES, FILL_BYTES // max(1, slice_bytes)))
    batch: list[Name] = []
    for name in names:
        batch.append(name)
        if len(batch) == most:
            yield batch
            batch = []
    if batch:
        yield batch


def names_part(names: Iterable[Name]) -> bytes:
    """The FILL payload of names."""
    return b"".join(RECORD_HEADER.pack(*name) for name in names)


def read_names(payload: memoryview, count: int, peer: str) -> list[Name]:
    """The names of a FILL payload. Raises FabricError when it does not hold `count`."""
    if len(payload) != count * RECORD_HEADER.size or count > MOST_NAMES:
        raise FabricError(f"{peer} sent {len(payload)} bytes as the names of {count} slices")
    return [Name(*found) for found in RECORD_HEADER.iter_unpack(payload)]


def lacking_part(count: int, indexes: Iterable[int]) -> bytes:
    """The FILLED payload: a bit for each of `count` names, set for those at `indexes`."""
    bits = bytearray(-(-count // 8))
    for index in indexes:
        bits[index // 8] |= 1 << index % 8
    return bytes(bits)


def read_lacking(payload: memoryview, count: int, peer: str) -> list[int]:
    """Indexes of the names that were not filled. Raises FabricError for bits of another number."""
    bits = int.from_bytes(payload, "little")
    if len(payload) != -(-count // 8) or bits >> count:
        raise FabricError(f"{peer} sent {len(payload)} bytes as bits of {count} slices")
    return [index for index in range(count) if payload[index // 8] >> index % 8 & 1]


def slots_part(slots: Sequence[int]) -> bytes:
    """The RETIRE payload of slots."""
    return struct.pack(f"<{len(slots)}I", *slots)


def read_slots(payload: memoryview, count: int, peer: str) -> tuple[int, ...]:
    """The slots of a RETIRE payload. Raises FabricError when it does not hold `count`."""
    if len(payload) != count * SLOT_BYTES:
        raise FabricError(f"{peer} sent {len(payload)} bytes as {count} slots to retire")
    return struct.unpack(f"<{count}I", payload)
