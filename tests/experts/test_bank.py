"""Banks: whole or absent, and no flipped bit is ever served."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import re
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from k3d.errors import BankError, CheckpointError
from k3d.experts import bank_file, bank_writer, write_behind
from k3d.experts.bank import (
    Bank,
    bank_path,
    build_bank,
    open_or_build,
    slice_of,
    whole_header,
)
from k3d.experts.content_hash import content_hash
from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint
from k3d.model.weights import load_weights
from tests.model import shard_editing as edit
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]
MODEL = TinyModel(seed=1)


def source_of(folder: Path) -> ExpertSource:
    return ExpertSource(Checkpoint(folder))


@pytest.fixture(scope="module")
def built(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A bank and the digest of its model; tests copy it before they damage it."""
    source = source_of(tiny(MODEL))
    path = tmp_path_factory.mktemp("banks") / "tiny.bank"
    build_bank(source, path)
    return path, source.checkpoint.digest


@pytest.fixture
def copy(built: tuple[Path, str], tmp_path: Path) -> Path:
    path = tmp_path / "tiny.bank"
    path.write_bytes(built[0].read_bytes())
    return path


@pytest.fixture
def digest(built: tuple[Path, str]) -> str:
    return built[1]


def layout(raw: bytes) -> tuple[int, int, int]:
    """Where the hash tables start, where they end, and where the records start."""
    (length,) = struct.unpack("<I", raw[8:12])
    table = 76 + length
    records = 8 * 16
    record = msgspec.msgpack.decode(raw[76:table])["record_bytes"]
    a_segment = 65536 // record
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
        fixed = struct.pack("<8sI32s", bank_file.MAGIC, len(header), blake3(header).digest())
        copy.write_bytes(fixed + whole[44:76] + header + whole[table:])
        with pytest.raises(BankError, match="version"):
            Bank(copy, model_digest=digest)


def test_missing_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(BankError, match="cannot be opened"):
        Bank(tmp_path / "none.bank", model_digest="0" * 64)
    with pytest.raises(BankError, match="cannot be"):
        Bank(tmp_path, model_digest="0" * 64)


def test_a_bank_of_shards_that_were_repaired_since_is_built_again(
    tiny: Tiny, tmp_path: Path
) -> None:
    folder, path = tmp_path / "model", tmp_path / "model.bank"
    shutil.copytree(tiny(MODEL), folder)
    good = open_or_build(source_of(folder), path)
    wanted = good.content_digest
    good.close()
    shard = sorted(folder.glob("*.safetensors"))[3]
    raw = bytearray(shard.read_bytes())
    middle = len(raw) * 3 // 4  # packed codes, outside what the model's digest samples
    raw[middle] ^= 0x11
    path.unlink()
    shard.write_bytes(raw)
    open_or_build(source_of(folder), path).close()
    raw[middle] ^= 0x11
    shard.write_bytes(raw)
    repaired = open_or_build(source_of(folder), path)
    assert repaired.content_digest == wanted
    repaired.close()


def loaded_source(folder: Path) -> ExpertSource:
    """A source of a checkpoint whose other weights have been read, as a Station's."""
    checkpoint = Checkpoint(folder)
    load_weights(checkpoint)
    return ExpertSource(checkpoint)


def flip(folder: Path, name: str) -> None:
    """Flip one bit in the middle of a tensor and leave the shard its time: what a disk does."""
    entry = Checkpoint(folder).entry(name)
    stat = entry.path.stat()
    raw = bytearray(entry.path.read_bytes())
    raw[entry.offset + entry.size_bytes // 2] ^= 1
    entry.path.write_bytes(raw)
    os.utime(entry.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_weight_that_decayed_is_named_wherever_it_is(
    tiny: Tiny, tmp_path: Path, seed: int
) -> None:
    folder, path = tmp_path / "model", tmp_path / "model.bank"
    shutil.copytree(tiny(MODEL), folder)
    open_or_build(loaded_source(folder), path).close()
    stamp = path.stat().st_mtime_ns
    open_or_build(loaded_source(folder), path).close()
    assert path.stat().st_mtime_ns == stamp
    names = sorted(loaded_source(folder).checkpoint.digests)
    assert not [name for name in names if ".experts." in name]
    names = [name for name in names if not name.endswith("A_log")]  # its padding is checked first
    digest = Checkpoint(folder).digest
    silent = 0
    for name in random.Random(seed).sample(names, 12):
        flip(folder, name)
        if Checkpoint(folder).digest == digest:
            silent += 1  # outside what the model's digest samples
            with pytest.raises(CheckpointError, match=re.escape(name)) as caught:
                open_or_build(loaded_source(folder), path)
            assert "has changed since its bank was built" in caught.value.message
        flip(folder, name)
    assert silent
    open_or_build(loaded_source(folder), path).close()
    assert path.stat().st_mtime_ns == stamp


def test_hashing_the_other_weights_is_what_reading_them_does(tiny: Tiny) -> None:
    checkpoint = Checkpoint(tiny(MODEL))
    checkpoint.hash_others()
    assert checkpoint.digests == loaded_source(tiny(MODEL)).checkpoint.digests


def test_a_bank_that_remembers_other_weights_is_built_again(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "model.bank"
    open_or_build(source_of(tiny(MODEL)), path).close()
    bank = open_or_build(loaded_source(tiny(MODEL)), path)
    assert bank.header.weights
    bank.close()


def test_a_bank_of_an_earlier_format_is_built_again(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "model.bank"
    open_or_build(source_of(tiny(MODEL)), path).close()
    whole = path.read_bytes()
    path.write_bytes(b"K3BANK01" + whole[8:])
    with pytest.raises(BankError, match="earlier k3pod"):
        Bank(path)
    open_or_build(source_of(tiny(MODEL)), path).close()
    assert path.read_bytes() == whole


def test_a_bank_that_another_process_builds_is_waited_for(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, waiting, flock = tmp_path / "model.bank", threading.Event(), fcntl.flock

    def lock(descriptor: int, how: int) -> None:
        if not how & fcntl.LOCK_NB:
            waiting.set()
        flock(descriptor, how)

    monkeypatch.setattr(bank_writer.fcntl, "flock", lock)
    source = source_of(tiny(MODEL))
    with bank_writer.BankWriter(path, whole_header(source)) as writer:
        other = threading.Thread(target=build_bank, args=(source_of(tiny(MODEL)), path))
        other.start()
        assert waiting.wait(30)
        for index, who in enumerate(writer.layout.order):
            writer.put(index, source.record(*who))
        writer.publish()
        published = path.stat()
    other.join()
    assert os.path.samestat(path.stat(), published)
    assert list(tmp_path.iterdir()) == [path]


def test_open_or_build(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny(MODEL)
    path = bank_path(tmp_path, "tiny", Checkpoint(folder).digest)
    first = open_or_build(source_of(folder), path)
    stamp = path.stat().st_mtime_ns
    second = open_or_build(source_of(folder), path)
    assert path.stat().st_mtime_ns == stamp
    assert first.record(1, 1) == second.record(1, 1)
    for bank in (first, second):
        bank.close()


def test_a_bank_of_another_checkpoint_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "x.bank"
    open_or_build(source_of(tiny(MODEL)), path).close()
    with pytest.raises(BankError, match="is of model"):
        open_or_build(source_of(tiny(TinyModel(seed=2))), path)


@pytest.mark.parametrize("room", [0, 50, 4096, 20_000, 1_000_000])
def test_disk_full_publishes_nothing(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    write, left = os.pwrite, room

    def write_while_there_is_room(descriptor: int, data: memoryview, offset: int) -> int:
        nonlocal left
        if len(data) > left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= len(data)
        return write(descriptor, data, offset)

    monkeypatch.setattr(bank_writer.os, "pwrite", write_while_there_is_room)
    folder = tmp_path / "banks"
    with pytest.raises(BankError, match="No space left on device") as caught:
        build_bank(source_of(tiny(MODEL)), folder / "x.bank")
    assert "free space" in (caught.value.hint or "")
    assert list(folder.iterdir()) == []


def test_a_failing_sync_publishes_nothing(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(bank_writer.os, "fsync", fail)
    with pytest.raises(BankError, match="Input/output error"):
        build_bank(source_of(tiny(MODEL)), tmp_path / "x.bank")
    assert list(tmp_path.iterdir()) == []


def test_syncs_on_the_way_change_nothing(
    tiny: Tiny, built: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "STEP_BYTES", 3_000)
    monkeypatch.setattr(write_behind, "BEHIND_BYTES", 10_000)
    build_bank(source_of(tiny(MODEL)), tmp_path / "x.bank")
    assert (tmp_path / "x.bank").read_bytes() == built[0].read_bytes()


def test_a_sync_that_fails_on_the_way_publishes_nothing(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(write_behind, "BEHIND_BYTES", 10_000)
    monkeypatch.setattr(write_behind, "_RANGE", fail)
    with pytest.raises(BankError, match="Input/output error"):
        build_bank(source_of(tiny(MODEL)), tmp_path / "x.bank")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_breaks_half_way_publishes_nothing(tiny: Tiny, tmp_path: Path) -> None:
    folder = edit.copy_of(tiny(MODEL), tmp_path / "broken")
    name = "language_model.model.layers.7.block_sparse_moe.experts.2.w1.weight_scale"
    edit.overwrite(folder, name, b"\x7f")
    banks = tmp_path / "banks"
    with pytest.raises(CheckpointError, match=r"layers\.7.*experts\.2"):
        build_bank(source_of(folder), banks / "x.bank")
    assert list(banks.iterdir()) == []


def test_an_old_bank_survives_a_failed_rebuild(
    tiny: Tiny, copy: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.read_bytes()

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(bank_writer.os, "fsync", fail)
    with pytest.raises(BankError):
        build_bank(source_of(tiny(MODEL)), copy)
    assert copy.read_bytes() == before


def test_a_folder_that_is_a_file(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "banks").write_text("a file")
    with pytest.raises(BankError, match="cannot be written"):
        build_bank(source_of(tiny(MODEL)), tmp_path / "banks" / "x.bank")


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

    monkeypatch.setattr(bank_file, "content_hash", counting)
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
