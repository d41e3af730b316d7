"""Bank files: every expert record of one model in integer order, each with its hash.

| bytes | content |
| --- | --- |
| 0..8 | magic `K3BANK01` |
| 8..12 | u32 little-endian: length n of the header |
| 12..44 | blake3 of the header |
| 44..44+n | header, msgpack: model digest, slice index and count, expert shape, record bytes |
| then | hash table: 32 bytes of blake3 a record, in record order |
| then | zeros, which are checked, up to a multiple of 4096 |
| data | records of `record_bytes`, ordered by (layer, expert) as integers |

The header also remembers the hashes of the weights outside the experts, so that a checkpoint that
has decayed since is found wherever it did: every byte that is computed with is verified at load.

A slice is a contiguous part of a record (record.py), so one bank of whole experts (slice 0 of 1)
serves any number of sparks. A bank is published by rename: it is whole or absent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import NoReturn

import msgspec
from blake3 import blake3

from k3d.errors import BankError, CheckpointError
from k3d.experts.shape import ExpertShape
from k3d.experts.source import ExpertSource
from k3d.safetensors_header import TensorEntry

MAGIC = b"K3BANK01"
_FIXED = struct.Struct("<8sI32s")
_HASH_BYTES = 32
_PAGE = 4096
_REBUILD = "remove the file, then k3ctl pod down and k3ctl pod up, which builds it again"


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


def bank_path(folder: Path, model_name: str, model_digest: str) -> Path:
    return folder / f"{model_name}-{model_digest[:12]}.bank"


def build_bank(
    source: ExpertSource, path: Path, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write a bank of whole experts, one record in memory at a time; atomic."""
    shape = source.shape
    header = msgspec.msgpack.encode(
        BankHeader(
            source.checkpoint.digest,
            0,
            1,
            shape,
            shape.record_bytes,
            _shards(source),
            dict(source.checkpoint.digests),
        )
    )
    count = len(shape.layers) * shape.experts
    table_start = _FIXED.size + len(header)
    data_start = _data_start(table_start, count)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(_FIXED.pack(MAGIC, len(header), blake3(header).digest()) + header)
            file.seek(data_start)
            hashes = bytearray()
            for index, (layer, expert) in enumerate(_order(shape)):
                record = source.record(layer, expert)
                hashes += blake3(record).digest()
                file.write(record)
                if progress is not None:
                    progress(index + 1, count)
            file.seek(table_start)
            file.write(hashes)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        _write_failed(path, error)
    finally:
        with contextlib.suppress(OSError):  # what went wrong first is what is reported
            partial.unlink()


def _write_failed(path: Path, error: OSError) -> NoReturn:
    hint = f"free space on {path.parent}" if error.errno == errno.ENOSPC else "check the folder"
    raise BankError(f"bank {path} cannot be written: {error.strerror}", hint=hint) from error


class Bank:
    """An open bank file. Records are read and verified one at a time; nothing is mapped whole."""

    def __init__(self, path: Path, *, model_digest: str) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise BankError(f"bank {path} cannot be opened: {error.strerror}") from error
        try:
            self._open(model_digest)
        except OSError as error:
            self._file.close()
            raise BankError(f"bank {path} cannot be read: {error.strerror}") from error
        except BaseException:
            self._file.close()
            raise

    def _open(self, model_digest: str) -> None:
        size = os.fstat(self._file.fileno()).st_size
        self.header, table_start = _read_header(self._file, size, self.path.name)
        self.shape = self.header.shape
        if self.header.model_digest != model_digest:
            raise BankError(
                f"bank {self.path.name} is of model {self.header.model_digest[:12]}, not "
                f"{model_digest[:12]}",
                hint=_REBUILD,
            )
        count = len(self.shape.layers) * self.shape.experts
        self._data_start = _data_start(table_start, count)
        wanted = self._data_start + count * self.header.record_bytes
        if size != wanted:
            raise BankError(f"bank {self.path.name} is {size} bytes, not {wanted}", hint=_REBUILD)
        rest = os.pread(self._file.fileno(), self._data_start - table_start, table_start)
        self._hashes = rest[: count * _HASH_BYTES]
        if rest[len(self._hashes) :].strip(b"\0"):
            raise BankError(
                f"bank {self.path.name} is damaged between its hashes and its records",
                hint=_REBUILD,
            )

    @property
    def content_digest(self) -> str:
        """Names the bytes of all records: blake3 of the hash table, hex."""
        return blake3(self._hashes).hexdigest()

    def record(self, layer: int, expert: int) -> memoryview:
        """One verified record. Raises BankError naming layer and expert on any wrong byte."""
        what = f"bank {self.path.name}: the record of layer {layer} expert {expert}"
        if layer not in self.shape.layers or not 0 <= expert < self.shape.experts:
            raise BankError(f"{what} does not exist")
        index = (layer - self.shape.layers[0]) * self.shape.experts + expert
        size = self.header.record_bytes
        try:
            record = os.pread(self._file.fileno(), size, self._data_start + index * size)
        except OSError as error:
            raise BankError(f"{what} cannot be read: {error.strerror}") from error
        digest = self._hashes[index * _HASH_BYTES : (index + 1) * _HASH_BYTES]
        if blake3(record).digest() != digest:
            raise BankError(f"{what} does not match its hash", hint=_REBUILD)
        return memoryview(record)

    def verify(self) -> int:
        """Re-read and re-hash every record; returns how many there are."""
        order = list(_order(self.shape))
        for layer, expert in order:
            self.record(layer, expert)
        return len(order)

    def close(self) -> None:
        self._file.close()


def open_or_build(
    source: ExpertSource, path: Path, progress: Callable[[int, int], None] | None = None
) -> Bank:
    """The bank at `path`, built first if it is absent; its shape must be the checkpoint's.

    To be called when the weights outside the experts have been read: they must be those that the
    bank remembers. Raises BankError for a bank, CheckpointError for a checkpoint that is damaged.
    """
    if path.exists():
        bank = Bank(path, model_digest=source.checkpoint.digest)
        remembered, found = bank.header.weights, source.checkpoint.digests
        if bank.header.shards == _shards(source) and remembered.keys() == found.keys():
            changed = [name for name in sorted(found) if found[name] != remembered[name]]
            if changed:
                bank.close()
                raise _decayed(source.checkpoint.entry(changed[0]), len(changed))
            source.skip()
            return _checked(bank, source)
        bank.close()  # the shards were fetched again or repaired since
    build_bank(source, path, progress)
    return _checked(Bank(path, model_digest=source.checkpoint.digest), source)


def _decayed(entry: TensorEntry, count: int) -> CheckpointError:
    more = f", and {count - 1} more have" if count > 1 else ""
    return CheckpointError(
        f"tensor {entry.name} of shard {entry.path.name} has changed since its bank was built"
        f"{more}, though the file's time has not: it is damaged",
        hint="fetch the shard again",
    )


def _checked(bank: Bank, source: ExpertSource) -> Bank:
    if bank.shape != source.shape:
        raise BankError(f"bank {bank.path.name} is cut for another expert shape", hint=_REBUILD)
    return bank


def _shards(source: ExpertSource) -> tuple[tuple[str, int, int], ...]:
    found = [(shard.name, shard.stat()) for shard in source.checkpoint.shards]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def slice_of(record: memoryview, slice_index: int, slice_count: int) -> memoryview:
    """The bytes of one slice; a view, not a copy."""
    size = len(record) // slice_count
    return record[slice_index * size : (slice_index + 1) * size]


def _order(shape: ExpertShape) -> Iterator[tuple[int, int]]:
    return ((layer, expert) for layer in shape.layers for expert in range(shape.experts))


def _data_start(table_start: int, count: int) -> int:
    return -(-(table_start + count * _HASH_BYTES) // _PAGE) * _PAGE


def _read_header(file: FileIO, size: int, name: str) -> tuple[BankHeader, int]:
    """The header and where the hash table starts."""

    def refuse(what: str) -> BankError:
        return BankError(f"bank {name} {what}", hint=_REBUILD)

    prefix = os.pread(file.fileno(), _FIXED.size, 0)
    if len(prefix) < _FIXED.size:
        raise refuse("is truncated")
    magic, length, digest = _FIXED.unpack(prefix)
    if magic != MAGIC:
        raise refuse("is not a bank of this version")
    if length > size:
        raise refuse(f"announces a header of {length} bytes in a file of {size}")
    header = os.pread(file.fileno(), length, _FIXED.size)
    if blake3(header).digest() != digest:
        raise refuse("has a damaged header")
    try:
        return msgspec.msgpack.decode(header, type=BankHeader), _FIXED.size + length
    except msgspec.MsgspecError as error:
        raise refuse(f"has a header of another version: {error}") from None
