"""Where everything lies in a bank file, and what its manifest says of every record."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from blake3 import blake3

from k3d.experts.bank_header import BankHeader, RecordOrder, decode_header
from k3d.experts.content_hash import content_hash

MAGIC = b"K3BANK03"
PREFIX = struct.Struct("<8sI32s32s")
HASH_BYTES = 32
PAGE = 4096


@dataclass(frozen=True)
class BankLayout:
    """Where everything is in the file of a header."""

    header: BankHeader
    encoded: bytes
    order: RecordOrder

    @classmethod
    def of(cls, header: BankHeader) -> BankLayout:
        return cls(header, msgspec.msgpack.encode(header), RecordOrder(header.shape, header.held))

    @classmethod
    def decoded(cls, encoded: bytes, name: str) -> BankLayout:
        """Of a header as it lies in a file. Raises BankError as decode_header."""
        header = decode_header(encoded, name)
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
