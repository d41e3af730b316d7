"""Writing past the page cache: from a buffer to the disk with no copy, and nothing left to drop.

The disk takes whole blocks from addresses that are multiples of a block. So data must lie in memory
as it will lie in the file: `direct_buffer` gives memory that begins at a block, and whoever fills
it begins at `file offset % BLOCK`. The parts of a block at either end go through the page cache, as
does everything where a file system or a buffer does not allow more.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from contextlib import suppress

BLOCK = 4096
LARGE_PAGE = 2 * 2**20
LEAST_BYTES = 64 * 2**10
"""Less is written sooner through the page cache than waited for."""


def direct_buffer(size_bytes: int) -> memoryview:
    """Memory for `size_bytes` from any place in a block on; it begins at one. In large pages where
    the kernel has them: a disk takes fewer and larger parts then."""
    room = size_bytes + BLOCK
    if LARGE_PAGE // 2 <= room < LARGE_PAGE:
        room = LARGE_PAGE
    memory = mmap.mmap(-1, room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


class DirectWriter:
    """Writes to an open file. Nothing of this makes it durable: that takes one fsync at its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._direct = _reopened(descriptor)

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Write every byte at its place; the number that went through the page cache. Raises
        OSError."""
        view = memoryview(data)
        end = offset + len(view)
        begin, stop = -(-offset // BLOCK) * BLOCK, end // BLOCK * BLOCK
        if stop - begin < LEAST_BYTES or not self._past_cache(view, offset, begin, stop):
            begin = stop = end
        write_all(self._descriptor, view[: begin - offset], offset)
        write_all(self._descriptor, view[stop - offset :], stop)
        return len(view) - (stop - begin)

    def close(self) -> None:
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None

    def _past_cache(self, view: memoryview, offset: int, begin: int, stop: int) -> bool:
        """Write the whole blocks of `view`; False where that is not possible. Raises OSError."""
        address = _address(view)
        if self._direct is None or address is None or (address - offset) % BLOCK:
            return False
        try:
            write_all(self._direct, view[begin - offset : stop - offset], begin)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.close()  # a file system with conditions of its own
            return False
        return True


def write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write every byte at its place. Raises OSError."""
    left = memoryview(data)
    while left:
        count = os.pwrite(descriptor, left, offset)
        left, offset = left[count:], offset + count


def _reopened(descriptor: int) -> int | None:
    """The same file, whatever its name is by now; None where it cannot be had this way."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_DIRECT)
    except (OSError, AttributeError):
        return None


def _address(view: memoryview) -> int | None:
    """Where it lies; None for one that is read-only, which nobody placed for this."""
    if view.readonly:
        return None
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
