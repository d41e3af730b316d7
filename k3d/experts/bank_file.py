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
from io import FileIO
from pathlib import Path

from blake3 import blake3

from k3d.errors import BankError
from k3d.experts.bank_header import REBUILD
from k3d.experts.bank_layout import MAGIC, PREFIX, BankLayout, Manifest
from k3d.experts.content_hash import content_hash
from k3d.experts.pages import WORTH_DROPPING_BYTES, drop_pages

EARLIER = (b"K3BANK01", b"K3BANK02")


class EarlierBank(BankError):
    """A bank in a format of an earlier k3pod: it can only be built again."""


def read_manifest(file: FileIO, name: str) -> Manifest:
    """The manifest of an open bank. Raises BankError naming the part that is damaged."""
    size = os.fstat(file.fileno()).st_size
    layout = BankLayout.decoded(_read_header(file, size, name), name)
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


def _read_header(file: FileIO, size: int, name: str) -> bytes:
    """The encoded header, whole. Raises BankError, EarlierBank."""

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
    return encoded
