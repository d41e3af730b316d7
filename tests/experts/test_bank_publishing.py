"""A bank is published whole or not at all, and built again when it is not what it should be."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import re
import shutil
import threading
from pathlib import Path

import pytest

from k3d.errors import BankError, CheckpointError
from k3d.experts import bank_writer, partial_file, write_behind
from k3d.experts.bank import (
    Bank,
    bank_path,
    build_bank,
    open_or_build,
    whole_header,
)
from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint
from k3d.model.weights import load_weights
from tests.experts.bank_copies import MODEL, Tiny, source_of
from tests.model import shard_editing as edit
from tests.tiny_checkpoint import TinyModel


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

    monkeypatch.setattr(partial_file.fcntl, "flock", lock)
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
