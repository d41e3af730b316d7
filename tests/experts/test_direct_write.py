"""Writing past the page cache: the same bytes from any place to any place, or through the cache."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3d.experts import direct_write
from k3d.experts.direct_write import BLOCK, LEAST_BYTES, DirectWriter, direct_buffer


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


@pytest.fixture
def writer(descriptor: int) -> Iterator[DirectWriter]:
    made = DirectWriter(descriptor)
    yield made
    made.close()


def lying(data: bytes, offset: int) -> memoryview:
    """These bytes where they have to lie for this place in a file."""
    view = direct_buffer(len(data))[offset % BLOCK :][: len(data)]
    view[:] = data
    return view


def test_only_the_ends_go_through_the_page_cache(descriptor: int, writer: DirectWriter) -> None:
    if writer._direct is None:
        pytest.skip("the file system of the temporary folder writes through the page cache only")
    source, at, wanted = random.Random(1), BLOCK, bytearray(BLOCK)
    for size in (LEAST_BYTES + 2 * BLOCK, 10, LEAST_BYTES + 7, 3 * LEAST_BYTES + 4095, BLOCK - 112):
        data = source.randbytes(size)
        begin, stop = -(-at // BLOCK) * BLOCK, (at + size) // BLOCK * BLOCK
        ends = size - (stop - begin) if stop - begin >= LEAST_BYTES else size
        assert writer.write(lying(data, at), at) == ends
        at += size
        wanted += data
    assert os.pread(descriptor, at + 1, 0) == wanted


def test_one_record_after_another_backwards(descriptor: int, writer: DirectWriter) -> None:
    """Neighbours share a block, whichever of them comes first."""
    size, source = LEAST_BYTES + BLOCK + 3472, random.Random(2)
    records = [source.randbytes(size) for _ in range(5)]
    for index in reversed(range(5)):
        writer.write(lying(records[index], index * size), index * size)
    assert os.pread(descriptor, 6 * size, 0) == b"".join(records)


@pytest.mark.parametrize("kind", ["bytes", "elsewhere"])
def test_what_does_not_lie_right_goes_through_the_page_cache(
    descriptor: int, writer: DirectWriter, kind: str
) -> None:
    data = random.Random(3).randbytes(LEAST_BYTES + BLOCK)
    given = data if kind == "bytes" else lying(data, 1)
    assert writer.write(given, 0) == len(data)
    assert os.pread(descriptor, len(data) + 1, 0) == data


@pytest.mark.parametrize("where", ["open", "write"])
def test_a_file_system_that_does_not_do_it(
    descriptor: int, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    cached, opened = os.pwrite, os.open
    refused: list[int] = []

    def refuse(given: object, *rest: object) -> int:
        if where == "open" and isinstance(given, str) and given.startswith("/proc/"):
            refused.append(1)
            raise OSError(errno.EINVAL, "Invalid argument")
        if where == "write" and isinstance(given, int) and given != descriptor:
            refused.append(1)
            raise OSError(errno.EINVAL, "Invalid argument")
        return (opened if isinstance(given, str) else cached)(given, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(direct_write.os, "open", refuse)
    monkeypatch.setattr(direct_write.os, "pwrite", refuse)
    writer = DirectWriter(descriptor)
    data = random.Random(4).randbytes(2 * LEAST_BYTES)
    for at in (0, len(data)):
        assert writer.write(lying(data, at), at) == len(data)
    writer.close()
    assert refused == [1]  # not asked again
    assert os.pread(descriptor, 2 * len(data) + 1, 0) == 2 * data


def test_a_disk_that_fails_is_not_passed_over(
    writer: DirectWriter, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(given: int, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(direct_write.os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        writer.write(lying(bytes(LEAST_BYTES), 0), 0)
    assert os.fstat(descriptor).st_size == 0
