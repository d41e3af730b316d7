"""Bank files: expert records of one model, or one slice of each, with the hash of every record.

| bytes | content |
| --- | --- |
| 0..8 | magic `K3BANK03` |
| 8..12 | u32 little-endian: length n of the header |
| 12..44 | blake3 of the header |
| 44..76 | blake3 of the hash tables |
| 76..76+n | header, msgpack: model digest, slice, map, expert shape, record bytes, sources |
| then | hash table: 32 bytes of blake3 a record, in record order |
| then | where records are small, another one: 32 bytes of blake3 a segment |
| then | zeros, which are checked, up to a multiple of 4096 |
| data | records of `record_bytes`, ordered by (layer, expert) as integers |

All before the data is the manifest: it names every byte of the file, so that what a disk or a
network changed is found wherever it is. The header also remembers the hashes of the weights outside
the experts, so that a checkpoint that has decayed since is found too.

A segment is as many neighbouring records as fit the header's segment_bytes. Hashing one takes a
fraction of hashing its records one by one, so that whoever reads all of a bank does that, and looks
at the records where a segment is not what it was. Records of half a segment or more have none.

A slice is a contiguous part of a record (record.py), so one bank of whole experts (slice 0 of 1)
serves any number of sparks. A bank is published by rename: it is whole or absent.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import msgspec
from blake3 import blake3

from k3d.errors import BankError, ConfigError
from k3d.experts.content_hash import content_hash
from k3d.experts.pages import WORTH_DROPPING_BYTES, drop_pages
from k3d.experts.shape import ExpertFormat, ExpertShape

MAGIC = b"K3BANK03"
EARLIER = (b"K3BANK01", b"K3BANK02")
PREFIX = struct.Struct("<8sI32s32s")
HASH_BYTES = 32
PAGE = 4096
SEGMENT_BYTES = 256 * 2**10
"""Of banks that are made now."""
MOST_SEGMENT_BYTES = 16 * 2**20
MOST_EXPERTS = 2**22
REBUILD = "remove the file, then: k3ctl bank build, or k3ctl pod down and k3ctl pod up"


class EarlierBank(BankError):
    """A bank in a format of an earlier k3pod: it can only be built again."""


class BankHeader(msgspec.Struct, frozen=True):
    """What a bank holds; checked against the pod before a byte of it is served."""

    model_digest: str
    slice_index: int
    slice_count: int
    shape: ExpertShape
    record_bytes: int
    shards: tuple[tuple[str, int, int], ...] = ()
    """Name, bytes and mtime_ns of the shards it was built from; another set means build again."""
    weights: dict[str, bytes] = {}
    """blake3 of the tensors outside the experts, by name, as they were then."""
    map_digest: str | None = None
    """The placement that chose its experts; None for a bank of all."""
    held: bytes = b""
    """One bit an expert, in record order from the lowest bit of byte 0; empty holds all."""
    recast_from: ExpertFormat | None = None
    """The release's format, when the records are an exact recast of it."""
    segment_bytes: int = 64 * 2**10
    """Most of a segment; a bank that does not say was made with this."""


class RecordOrder(Sequence[tuple[int, int]]):
    """(layer, expert) of every record of a bank, by its index in the file."""

    def __init__(self, shape: ExpertShape, held: bytes = b"") -> None:
        self._layers = shape.layers
        self._experts = shape.experts
        self._row_of = {layer: row for row, layer in enumerate(shape.layers)}
        self._total = len(shape.layers) * shape.experts
        self._positions: range | list[int] = range(self._total)
        if held:
            places = (
                8 * number + bit
                for number, byte in enumerate(held)
                if byte
                for bit in range(8)
                if byte >> bit & 1
            )
            self._positions = [place for place in places if place < self._total]

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: int) -> tuple[int, int]:  # type: ignore[override]
        row, expert = divmod(self._positions[index], self._experts)
        return self._layers[row], expert

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (self[index] for index in range(len(self)))

    def find(self, layer: int, expert: int) -> int | None:
        """Index of an expert's record; None where the bank does not hold it."""
        row = self._row_of.get(layer)
        if row is None or not 0 <= expert < self._experts:
            return None
        place = row * self._experts + expert
        if isinstance(self._positions, range):
            return place
        index = bisect_left(self._positions, place)
        found = index < len(self._positions) and self._positions[index] == place
        return index if found else None


def held_mask(shape: ExpertShape, experts: Sequence[tuple[int, int]]) -> bytes:
    """The `held` of a bank of these (layer, expert)."""
    row_of = {layer: row for row, layer in enumerate(shape.layers)}
    mask = bytearray(-(-len(shape.layers) * shape.experts // 8))
    for layer, expert in experts:
        place = row_of[layer] * shape.experts + expert
        mask[place // 8] |= 1 << place % 8
    return bytes(mask)


@dataclass(frozen=True)
class BankLayout:
    """Where everything is in the file of a header."""

    header: BankHeader
    encoded: bytes
    order: RecordOrder

    @classmethod
    def of(cls, header: BankHeader) -> BankLayout:
        encoded = msgspec.msgpack.encode(header)
        return cls(header, encoded, RecordOrder(header.shape, header.held))

    @property
    def count(self) -> int:
        return len(self.order)

    @property
    def table_start(self) -> int:
        return PREFIX.size + len(self.encoded)

    @property
    def data_start(self) -> int:
        return -(-self.packed_bytes // PAGE) * PAGE

    @property
    def packed_bytes(self) -> int:
        """Of the manifest without the zeros at its end."""
        return self.table_start + self.table_bytes

    @property
    def segment_records(self) -> int:
        """Records of a segment; 0 where there are none."""
        most = self.header.segment_bytes // self.header.record_bytes
        return most if most > 1 else 0

    @property
    def segments(self) -> int:
        return -(-self.count // self.segment_records) if self.segment_records else 0

    @property
    def table_bytes(self) -> int:
        """Of both hash tables."""
        return (self.count + self.segments) * HASH_BYTES

    @property
    def size_bytes(self) -> int:
        return self.data_start + self.count * self.header.record_bytes

    def offset(self, index: int) -> int:
        return self.data_start + index * self.header.record_bytes

    def runs(self, begin: int, end: int, most_bytes: int) -> Iterator[tuple[int, int]]:
        """(first, number) of the records from `begin` to `end` in pieces of about `most_bytes`,
        which split no segment that lies within."""
        step = max(1, most_bytes // self.header.record_bytes)
        segment = self.segment_records
        if segment:
            step = max(1, step // segment) * segment
        while begin < end:
            stop = min(end, (begin // step + 1) * step)
            yield begin, stop - begin
            begin = stop

    def manifest(self, hashes: bytes | bytearray, *, whole: bool = True) -> bytes:
        """Every byte before the data; `whole` False for a bank that is being built."""
        table_digest = blake3(hashes).digest() if whole else bytes(HASH_BYTES)
        prefix = PREFIX.pack(MAGIC, len(self.encoded), blake3(self.encoded).digest(), table_digest)
        return (prefix + self.encoded + hashes).ljust(self.data_start, b"\0")


@dataclass(frozen=True)
class Manifest:
    """A manifest that was read: it is whole, and agrees with itself. `hashes` are both tables."""

    layout: BankLayout
    hashes: bytes

    @property
    def header(self) -> BankHeader:
        return self.layout.header

    @property
    def raw(self) -> bytes:
        return self.layout.manifest(self.hashes)

    @property
    def packed(self) -> bytes:
        """What a transfer carries of it: the zeros at its end say nothing."""
        return self.raw[: self.layout.packed_bytes]

    def segment_digest(self, number: int) -> bytes:
        return self.digest(self.layout.count + number)

    def damaged(self, first: int, records: memoryview) -> list[int]:
        """Indexes of those of neighbouring records, from index `first` on, that are not the ones
        this manifest names."""
        layout, size = self.layout, self.layout.header.record_bytes
        count, segment = len(records) // size, layout.segment_records
        found: list[int] = []
        at = 0
        while at < count:
            index, many = first + at, 1
            if segment and index % segment == 0:
                whole = min(segment, layout.count - index)
                if at + whole <= count:
                    many = whole
                    piece = records[at * size : (at + many) * size]
                    if content_hash(piece) == self.segment_digest(index // segment):
                        at += many
                        continue
            for each in range(at, at + many):
                if content_hash(records[each * size : (each + 1) * size]) != self.digest(
                    first + each
                ):
                    found.append(first + each)
            at += many
        return found

    def digest(self, index: int) -> bytes:
        return self.hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES]

    @property
    def content_digest(self) -> str:
        """Names the bytes of all records: blake3 of the hash tables, hex."""
        return blake3(self.hashes).hexdigest()


def read_manifest(file: FileIO, name: str) -> Manifest:
    """The manifest of an open bank. Raises BankError naming the part that is damaged."""
    size = os.fstat(file.fileno()).st_size
    header, encoded = _read_header(file, size, name)
    layout = BankLayout(header, encoded, RecordOrder(header.shape, header.held))
    if size != layout.size_bytes:
        raise BankError(f"bank {name} is {size} bytes, not {layout.size_bytes}", hint=REBUILD)
    start = layout.table_start
    rest = os.pread(file.fileno(), layout.data_start - start, start)
    hashes = rest[: layout.table_bytes]
    manifest = Manifest(layout, hashes)
    if os.pread(file.fileno(), PREFIX.size, 0) != manifest.raw[: PREFIX.size]:
        raise BankError(f"bank {name} has a damaged hash table", hint=REBUILD)
    if rest[len(hashes) :].strip(b"\0"):
        raise BankError(f"bank {name} is damaged between its hashes and its records", hint=REBUILD)
    return manifest


class Bank:
    """An open bank file. Records are read and verified one at a time; nothing is mapped whole."""

    def __init__(self, path: Path, *, model_digest: str | None = None) -> None:
        """`model_digest` None opens the bank of any model, to look at it."""
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise BankError(f"bank {path} cannot be opened: {error.strerror}") from error
        try:
            self.manifest = read_manifest(self._file, path.name)
            self._check_model(model_digest)
        except OSError as error:
            self._file.close()
            raise BankError(f"bank {path} cannot be read: {error.strerror}") from error
        except BaseException:
            self._file.close()
            raise
        self.header = self.manifest.header
        self.shape = self.header.shape
        self.order = self.manifest.layout.order

    def _check_model(self, model_digest: str | None) -> None:
        found = self.manifest.header.model_digest
        if model_digest is not None and found != model_digest:
            raise BankError(
                f"bank {self.path.name} is of model {found[:12]}, not {model_digest[:12]}",
                hint=REBUILD,
            )

    @property
    def content_digest(self) -> str:
        """Names the bytes of all records: blake3 of the hash table, hex."""
        return self.manifest.content_digest

    def record(self, layer: int, expert: int) -> memoryview:
        """One verified record. Raises BankError naming layer and expert on any wrong byte."""
        index = self.order.find(layer, expert)
        what = f"bank {self.path.name}: the record of layer {layer} expert {expert}"
        if index is None:
            raise BankError(f"{what} does not exist")
        try:
            record = self.read(index)
        except OSError as error:
            raise BankError(f"{what} cannot be read: {error.strerror}") from error
        if content_hash(record) != self.manifest.digest(index):
            raise BankError(f"{what} does not match its hash", hint=REBUILD)
        return memoryview(record)

    def read(self, index: int, count: int = 1) -> bytes:
        """The bytes of neighbouring records as they are on the disk, whatever they are. Raises
        OSError."""
        size = count * self.header.record_bytes
        offset = self.manifest.layout.offset(index)
        record = os.pread(self._file.fileno(), size, offset)
        if size >= WORTH_DROPPING_BYTES:
            drop_pages(self._file.fileno(), offset, size)
        return record

    def verify(self) -> int:
        """Re-read and re-hash every record; returns how many there are."""
        for layer, expert in self.order:
            self.record(layer, expert)
        return len(self.order)

    @property
    def descriptor(self) -> int:
        """The open file, for a transfer that no record passes through this process."""
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


def _read_header(file: FileIO, size: int, name: str) -> tuple[BankHeader, bytes]:
    def refuse(what: str) -> BankError:
        return BankError(f"bank {name} {what}", hint=REBUILD)

    prefix = os.pread(file.fileno(), PREFIX.size, 0)
    if len(prefix) < PREFIX.size:
        raise refuse("is truncated")
    magic, length, digest, _ = PREFIX.unpack(prefix)
    if magic in EARLIER:
        raise EarlierBank(f"bank {name} was made by an earlier k3pod", hint=REBUILD)
    if magic != MAGIC:
        raise refuse("is not a bank of this version")
    if length > size:
        raise refuse(f"announces a header of {length} bytes in a file of {size}")
    encoded = os.pread(file.fileno(), length, PREFIX.size)
    if blake3(encoded).digest() != digest:
        raise refuse("has a damaged header")
    return decode_header(encoded, name), encoded


def decode_header(encoded: bytes, name: str) -> BankHeader:
    """A header from its bytes. Raises BankError where it is none or contradicts itself."""
    try:
        header = msgspec.msgpack.decode(encoded, type=BankHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BankError(
            f"bank {name} has a header of another version: {error}", hint=REBUILD
        ) from None
    shape, total = header.shape, len(header.shape.layers) * header.shape.experts
    try:
        sound = (
            0 < total <= MOST_EXPERTS
            and len(set(shape.layers)) == len(shape.layers)
            and 0 <= header.slice_index < header.slice_count
            and header.record_bytes == shape.slice_bytes(header.slice_count) > 0
            and len(header.held) in (0, -(-total // 8))
            and 0 <= header.segment_bytes <= MOST_SEGMENT_BYTES
        )
    except (ConfigError, ArithmeticError):
        sound = False
    if not sound:
        raise BankError(f"bank {name} has a header that contradicts itself", hint=REBUILD)
    return header
