"""Banks read back: no flipped bit is ever served."""

from __future__ import annotations

import errno
import os
import random
import struct
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from k3d.errors import BankError
from k3d.experts import bank_file, bank_layout
from k3d.experts.bank import (
    Bank,
    build_bank,
    slice_of,
)
from k3d.experts.bank_header import decode_header
from k3d.experts.bank_layout import BankLayout
from k3d.experts.content_hash import content_hash
from tests.experts.bank_copies import Tiny, source_of
from tests.tiny_checkpoint import TinyModel


def layout(raw: bytes) -> tuple[int, int, int]:
    """Where the hash tables start, where they end, and where the records start."""
    (length,) = struct.unpack("<I", raw[8:12])
    table = 76 + length
    records = 8 * 16
    header = msgspec.msgpack.decode(raw[76:table])
    a_segment = header["segment_bytes"] // header["record_bytes"]
    end = table + 32 * (records + (-(-records // a_segment) if a_segment > 1 else 0))
    return table, end, -(-end // 4096) * 4096


@pytest.mark.parametrize("release", ["nvfp4", "mxfp4"])
def test_records_come_back(tiny: Tiny, tmp_path: Path, release: str) -> None:
    folder = tiny(TinyModel(seed=1, release=release))  # type: ignore[arg-type]
    seen: list[tuple[int, int]] = []
    source = source_of(folder)
    build_bank(source, tmp_path / "deep" / "x.bank", lambda done, of: seen.append((done, of)))
    assert seen == [(n, 128) for n in range(1, 129)]
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["x.bank"]
    bank = Bank(tmp_path / "deep" / "x.bank", model_digest=source.checkpoint.digest)
    again = source_of(folder)
    assert bank.shape == again.shape
    for layer in again.shape.layers:
        for expert in range(again.shape.experts):
            assert bank.record(layer, expert) == again.record(layer, expert)
    assert bank.verify() == 128
    bank.close()


def test_slices_of_a_record(copy: Path, digest: str) -> None:
    bank = Bank(copy, model_digest=digest)
    record = bank.record(3, 11)
    for count in (1, 2, 4):
        parts = [slice_of(record, index, count) for index in range(count)]
        assert b"".join(parts) == record
    bank.close()


@pytest.mark.parametrize(("layer", "expert"), [(0, 0), (9, 0), (-1, 3), (3, 16), (3, -1), (8, 16)])
def test_records_that_do_not_exist(copy: Path, digest: str, layer: int, expert: int) -> None:
    bank = Bank(copy, model_digest=digest)
    with pytest.raises(BankError, match=f"layer {layer} expert {expert} does not exist"):
        bank.record(layer, expert)
    bank.close()


def test_every_header_byte_is_guarded(copy: Path, digest: str) -> None:
    whole = copy.read_bytes()
    table, _, _ = layout(whole)
    for at in range(table):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        copy.write_bytes(damaged)
        with pytest.raises(BankError, match=r"bank tiny\.bank") as caught:
            Bank(copy, model_digest=digest)
        assert caught.value.hint


def test_every_hash_is_guarded(copy: Path, digest: str) -> None:
    whole = copy.read_bytes()
    table, _, _ = layout(whole)
    for index in range(0, 128, 5):
        damaged = bytearray(whole)
        damaged[table + 32 * index + index % 32] ^= 16
        copy.write_bytes(damaged)
        with pytest.raises(BankError, match="has a damaged hash table"):
            Bank(copy, model_digest=digest)


def test_every_padding_byte_is_guarded(copy: Path, digest: str) -> None:
    whole = copy.read_bytes()
    _, end, start = layout(whole)
    assert end < start
    for at in range(end, start, 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        copy.write_bytes(damaged)
        with pytest.raises(BankError, match="between its hashes and its records") as caught:
            Bank(copy, model_digest=digest)
        assert caught.value.hint


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_of_records_are_named(copy: Path, digest: str, seed: int) -> None:
    whole = copy.read_bytes()
    _, _, start = layout(whole)
    size = (len(whole) - start) // 128
    source = random.Random(seed)
    for at in [start, len(whole) - 1, *(source.randrange(start, len(whole)) for _ in range(20))]:
        layer, expert = 1 + (at - start) // size // 16, (at - start) // size % 16
        damaged = bytearray(whole)
        damaged[at] ^= 1 << source.randrange(8)
        copy.write_bytes(damaged)
        bank = Bank(copy, model_digest=digest)
        with pytest.raises(BankError, match=rf"layer {layer} expert {expert} does not match"):
            bank.record(layer, expert)
        bank.close()


@pytest.mark.parametrize("keep", [0, 1, 43, 44, 100, 4096, 5000, -1])
def test_truncation(copy: Path, digest: str, keep: int) -> None:
    copy.write_bytes(copy.read_bytes()[:keep])
    with pytest.raises(BankError, match=r"tiny\.bank"):
        Bank(copy, model_digest=digest)


def test_trailing_bytes(copy: Path, digest: str) -> None:
    copy.write_bytes(copy.read_bytes() + b"\0")
    with pytest.raises(BankError, match="bytes, not"):
        Bank(copy, model_digest=digest)


def test_a_bank_of_another_model(copy: Path) -> None:
    with pytest.raises(BankError, match=r"is of model [0-9a-f]{12}, not 000000000000"):
        Bank(copy, model_digest="0" * 64)


def test_a_well_hashed_header_of_another_version(copy: Path, digest: str) -> None:
    whole = copy.read_bytes()
    table, _, _ = layout(whole)
    for header in (b"\x80", b"\xc1", b"", b"\x81\xa5model\x01"):
        fixed = struct.pack("<8sI32s", bank_layout.MAGIC, len(header), blake3(header).digest())
        copy.write_bytes(fixed + whole[44:76] + header + whole[table:])
        with pytest.raises(BankError, match="version"):
            Bank(copy, model_digest=digest)


def test_missing_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(BankError, match="cannot be opened"):
        Bank(tmp_path / "none.bank", model_digest="0" * 64)
    with pytest.raises(BankError, match="cannot be"):
        Bank(tmp_path, model_digest="0" * 64)


def test_an_unreadable_record(copy: Path, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = Bank(copy, model_digest=digest)

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(bank_file.os, "pread", fail)
    with pytest.raises(BankError, match="layer 2 expert 3 cannot be read: Input/output error"):
        bank.record(2, 3)
    bank.close()


def test_segments_are_hashed_whole_and_damage_is_named_within_them(
    copy: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Bank(copy, model_digest=digest)
    manifest, layout = bank.manifest, bank.manifest.layout
    assert 1 < layout.segment_records < layout.count
    hashed: list[int] = []

    def counting(data: memoryview) -> bytes:
        hashed.append(len(data))
        return content_hash(data)

    monkeypatch.setattr(bank_layout, "content_hash", counting)
    records = memoryview(bytearray(bank.read(0, layout.count)))
    assert manifest.damaged(0, records) == []
    assert len(hashed) == layout.segments
    size = layout.header.record_bytes
    for index in (0, layout.segment_records, layout.count - 1):
        records[index * size] ^= 1
    assert manifest.damaged(0, records) == [0, layout.segment_records, layout.count - 1]
    # From the middle of a segment to the middle of another: those two record by record.
    part = records[2 * size : (layout.segment_records + 1) * size]
    assert manifest.damaged(2, part) == [layout.segment_records]
    bank.close()


def test_a_bank_that_names_no_segments_size_has_those_of_64_kib(copy: Path, digest: str) -> None:
    bank = Bank(copy)
    size, count = bank.header.record_bytes, len(bank.order)
    records = bank.read(0, count)
    bank.close()
    header = msgspec.msgpack.decode(bank.manifest.layout.encoded)
    assert header.pop("segment_bytes") > 2**16
    encoded = msgspec.msgpack.encode(header)
    earlier = BankLayout(decode_header(encoded, "x"), encoded, bank.order)
    segment = 2**16 // size
    assert earlier.segments == -(-count // segment) > bank.manifest.layout.segments
    hashes = [
        blake3(records[at * size : min(count, at + many) * size]).digest()
        for many in (1, segment)
        for at in range(0, count, many)
    ]
    copy.write_bytes(earlier.manifest(b"".join(hashes)) + records)
    bank = Bank(copy, model_digest=digest)
    assert bank.verify() == count
    assert bank.manifest.segment_digest(1) == hashes[count + 1]
    assert bank.manifest.damaged(0, memoryview(records)) == []
    bank.close()


@pytest.mark.parametrize("segment_bytes", [-1, 2**40])
def test_a_segment_of_no_size_is_a_contradiction(copy: Path, segment_bytes: int) -> None:
    bank = Bank(copy)
    bank.close()
    header = msgspec.structs.replace(bank.header, segment_bytes=segment_bytes)
    with pytest.raises(BankError, match="contradicts itself"):
        decode_header(msgspec.msgpack.encode(header), "x")


def test_pieces_split_no_segment(copy: Path, digest: str) -> None:
    bank = Bank(copy, model_digest=digest)
    bank.close()
    layout = bank.manifest.layout
    segment = layout.segment_records
    found = list(layout.runs(2, layout.count, 3 * segment * layout.header.record_bytes))
    assert [first for first, _ in found] == [2, *range(3 * segment, layout.count, 3 * segment)]
    assert sum(count for _, count in found) == layout.count - 2
    assert list(layout.runs(5, 5, 1)) == []
    assert all(count <= segment for _, count in layout.runs(0, layout.count, 1))
