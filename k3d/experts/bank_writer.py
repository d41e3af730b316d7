"""Writing a bank: one record at a time, to go on after a kill, published in one step.

What is being written lies in `.NAME.partial` beside the bank, locked while somebody writes it. A
record is written first, then its hash in the table; whoever goes on later re-hashes what the table
claims and believes only that. So an interrupted build repeats no record that is whole, and a
record that was torn, or that the disk lost, is written again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import NoReturn

from k3d.errors import BankError
from k3d.experts.bank_header import SEGMENT_BYTES, BankHeader
from k3d.experts.bank_layout import HASH_BYTES, PREFIX, BankLayout, Manifest
from k3d.experts.content_hash import content_hash
from k3d.experts.direct_write import DirectWriter, write_all
from k3d.experts.pages import WORTH_DROPPING_BYTES, drop_pages
from k3d.experts.partial_file import take_partial
from k3d.experts.write_behind import WriteBehind
from k3d.experts.write_failed import write_failed

_NOTHING = bytes(HASH_BYTES)


class BankWriter:
    """A bank on its way to `path`. `missing` are the records, by index, that it still needs.

    With `wanted`, the records are known beforehand (a transfer): `put` takes those and no others.
    `wait` waits for another writer of the same bank, and `waited` says so, else that raises Locked.
    `kept` records were found whole in what an interrupted build left, each told to `progress` as
    it is checked; `discarded` says why they could not be used. `hash_s` grows with the time that
    hashing takes.
    Use it as a context manager: what is not published stays to be gone on with.
    """

    def __init__(
        self,
        path: Path,
        header: BankHeader,
        wanted: Manifest | None = None,
        *,
        wait: bool = False,
        progress: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.layout = wanted.layout if wanted is not None else BankLayout.of(header)
        self.discarded: str | None = None
        self.hash_s = 0.0
        self._wanted = wanted
        self._partial = path.with_name(f".{path.name}.partial")
        self._hashes = bytearray(self.layout.table_bytes)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor, self.waited = take_partial(self._partial, path.name, wait)
        except OSError as error:
            self._fail(error)
        self._file = DirectWriter(self._descriptor)
        self._behind = WriteBehind(self._descriptor)
        try:
            self.missing = self._go_on(progress)
        except OSError as error:
            self.discard()
            self.close()
            self._fail(error)
        except BaseException:
            self.close()
            raise
        self.kept = self.layout.count - len(self.missing)

    def put(self, index: int, record: bytes | memoryview) -> None:
        """Write one record. Raises BankError when it is not the wanted one, or for a full disk."""
        self.put_run(index, memoryview(record))

    def put_run(self, first: int, records: memoryview) -> None:
        """Write neighbouring records in one piece, from index `first` on; else as `put`."""
        if self._wanted is not None:
            self.check_run(first, records)
            self.write_run(first, records)
            return
        size = self.layout.header.record_bytes
        began = perf_counter()
        digests = b"".join(
            content_hash(records[at : at + size]) for at in range(0, len(records), size)
        )
        self.hash_s += perf_counter() - began
        self._write(first, records, digests)

    def check_run(self, first: int, records: memoryview) -> None:
        """Raises BankError, naming the first that is not, unless these are the wanted records."""
        wanted, size = self._wanted, self.layout.header.record_bytes
        assert wanted is not None
        began = perf_counter()
        damaged = wanted.damaged(first, records)
        self.hash_s += perf_counter() - began
        if damaged or len(records) % size:
            raise self._damaged(damaged[0] if damaged else first)

    def write_run(self, first: int, records: memoryview) -> None:
        """Write wanted records that were checked. Checking one piece and writing another may go on
        in two threads."""
        wanted = self._wanted
        assert wanted is not None
        count = len(records) // self.layout.header.record_bytes
        self._write(
            first, records, wanted.hashes[first * HASH_BYTES : (first + count) * HASH_BYTES]
        )

    def _write(self, first: int, records: memoryview, digests: bytes) -> None:
        count = len(digests) // HASH_BYTES
        begin, end = first * HASH_BYTES, (first + count) * HASH_BYTES
        try:
            cached_bytes = self._file.write(records, self.layout.offset(first))
            if self._wanted is None:
                write_all(self._descriptor, digests, self.layout.table_start + begin)
            self._behind.wrote(cached_bytes)
        except OSError as error:
            self._fail(error)
        self._hashes[begin:end] = digests
        self.missing.difference_update(range(first, first + count))

    def _damaged(self, index: int) -> BankError:
        layer, expert = self.layout.order[index]
        return BankError(
            f"bank {self.path.name}: the record of layer {layer} expert {expert} came damaged",
            hint="nothing of it was kept; send it again",
        )

    def publish(self) -> None:
        """Put everything on the disk, then give the bank its name."""
        if self.missing:
            raise BankError(f"bank {self.path.name} lacks {len(self.missing)} records")
        try:
            self._behind.finish()
            wanted = self._wanted
            if wanted is None:
                self._hash_segments()
            raw = self.layout.manifest(self._hashes) if wanted is None else wanted.raw
            write_all(self._descriptor, raw, 0)
            os.fsync(self._descriptor)
            drop_pages(self._descriptor, 0, 0)
            self._partial.replace(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            self._fail(error)

    def _hash_segments(self) -> None:
        """The second hash table, from what the disk gives back: bytes that are hashed once more.

        Raises OSError, BankError for a record that is not what was written.
        """
        layout, begun = self.layout, perf_counter()
        size, table = layout.header.record_bytes, layout.count * HASH_BYTES
        so_far = Manifest(layout, bytes(self._hashes))
        for number in range(layout.segments):
            first = number * layout.segment_records
            count = min(layout.segment_records, layout.count - first)
            records = memoryview(os.pread(self._descriptor, count * size, layout.offset(first)))
            for index in so_far.damaged(first, records):
                raise self._damaged(index)
            at = table + number * HASH_BYTES
            self._hashes[at : at + HASH_BYTES] = content_hash(records)
        self.hash_s += perf_counter() - begun

    def discard(self) -> None:
        """Remove what is not published."""
        with suppress(OSError):  # what went wrong first is what is reported
            if os.fstat(self._descriptor).st_ino == self._partial.stat().st_ino:
                self._partial.unlink()

    def close(self) -> None:
        self._behind.close()
        self._file.close()
        os.close(self._descriptor)

    def __enter__(self) -> BankWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _go_on(self, progress: Callable[[], None] | None) -> set[int]:
        """Indexes still to be written, after what an interrupted writer left was checked."""
        layout, everything = self.layout, set(range(self.layout.count))
        begun = layout.manifest(self._hashes, whole=False)
        if self._wanted is not None:
            begun = self._wanted.raw
        found = os.pread(self._descriptor, layout.data_start, 0)
        ours = found == begun if self._wanted is not None else _begun_alike(layout, found, begun)
        if not ours:
            if len(found) == layout.data_start:
                self.discarded = "it was begun from other sources or for another slice"
            os.ftruncate(self._descriptor, 0)
            write_all(self._descriptor, begun, 0)
            return everything
        if self._wanted is not None:
            return self._lacking(self._wanted, progress)
        claimed = found[layout.table_start :]
        size = layout.header.record_bytes
        for index in range(layout.count):
            digest = claimed[index * HASH_BYTES : (index + 1) * HASH_BYTES]
            if digest == _NOTHING:
                continue
            record = os.pread(self._descriptor, size, layout.offset(index))
            if size >= WORTH_DROPPING_BYTES:
                drop_pages(self._descriptor, layout.offset(index), size)
            began = perf_counter()
            sound = len(record) == size and content_hash(record) == digest
            self.hash_s += perf_counter() - began
            if sound:
                self._hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES] = digest
                everything.discard(index)
            if progress is not None:
                progress()
        return everything

    def _lacking(self, wanted: Manifest, progress: Callable[[], None] | None) -> set[int]:
        """Which of the wanted records an interrupted transfer did not leave whole."""
        layout, lacking = self.layout, set(range(self.layout.count))
        size = layout.header.record_bytes
        for first, count in layout.runs(0, layout.count, SEGMENT_BYTES):
            records = os.pread(self._descriptor, count * size, layout.offset(first))
            if len(records) >= WORTH_DROPPING_BYTES:
                drop_pages(self._descriptor, layout.offset(first), count * size)
            began, there = perf_counter(), len(records) // size
            damaged = wanted.damaged(first, memoryview(records)[: there * size])
            self.hash_s += perf_counter() - began
            lacking.difference_update(range(first, first + there))
            lacking.update(damaged)
            if progress is not None:
                for _ in range(count):
                    progress()
        return lacking

    def _fail(self, error: OSError) -> NoReturn:
        raise write_failed(self.path, error) from error


def sync_directory(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _begun_alike(layout: BankLayout, found: bytes, begun: bytes) -> bool:
    """Whether a partial was begun with this header, however far it came: the hash table and its
    digest aside, which is written last, all is the same."""
    table, end = layout.table_start, layout.table_start + layout.table_bytes
    digest = PREFIX.size - HASH_BYTES
    return (
        len(found) == layout.data_start
        and found[:digest] == begun[:digest]
        and found[PREFIX.size : table] == begun[PREFIX.size : table]
        and found[end:] == begun[end:]
    )
