"""Writing out while more is written: begun early, waited for in bounds, errors kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3d.experts import write_behind
from k3d.experts.write_behind import WriteBehind

BEGIN, WAIT = 2, 7


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def test_writing_out_is_begun_at_every_step_and_waited_for_behind(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def noting(_fd: int, _offset: int, _size: int, flags: int) -> int:
        calls.append(flags)
        return 0

    dropped: list[int] = []
    monkeypatch.setattr(write_behind, "_RANGE", noting)
    monkeypatch.setattr(write_behind, "STEP_BYTES", 100)
    monkeypatch.setattr(write_behind, "BEHIND_BYTES", 400)
    monkeypatch.setattr(write_behind, "drop_pages", lambda fd, *_: dropped.append(fd))
    behind = WriteBehind(descriptor)
    for _ in range(12):
        behind.wrote(50)
    behind.finish()
    behind.close()
    assert calls == [BEGIN, BEGIN, BEGIN, WAIT, BEGIN, BEGIN]
    assert dropped == [descriptor]


def test_without_the_call_of_linux_data_is_synced(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(write_behind, "_RANGE", None)
    monkeypatch.setattr(write_behind, "BEHIND_BYTES", 10)
    monkeypatch.setattr(write_behind.os, "fdatasync", synced.append)
    behind = WriteBehind(descriptor)
    behind.wrote(write_behind.STEP_BYTES)
    behind.finish()
    behind.close()
    assert synced == [descriptor]


def test_an_error_of_the_disk_comes_back(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(write_behind, "_RANGE", None)
    monkeypatch.setattr(write_behind, "BEHIND_BYTES", 10)
    monkeypatch.setattr(write_behind.os, "fdatasync", fail)
    behind = WriteBehind(descriptor)
    behind.wrote(10)
    with pytest.raises(OSError, match="Input/output error"):
        behind.wrote(10)
    behind.close()


def test_the_real_call_writes_a_file_out(descriptor: int) -> None:
    os.pwrite(descriptor, bytes(10_000), 0)
    write_behind._begin_writing(descriptor)
    write_behind._write_out(descriptor)
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="Illegal seek"):
            write_behind._write_out(writing)
    finally:
        os.close(reading)
        os.close(writing)
