"""Putting a growing file on its disk while more of it is written, without its filling memory.

Writing out is begun every STEP_BYTES, so that the disk never idles; what was begun is waited for
and let go of a BEHIND_BYTES later, in a thread of its own. Nothing of this makes a file durable:
that takes one fsync at its end.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from k3d.experts.pages import drop_pages

STEP_BYTES = 8 * 2**20
BEHIND_BYTES = 64 * 2**20
"""Not yet on the disk: at most twice as much, beside what has just been written."""
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4


class WriteBehind:
    """One open file. `wrote` may wait for the disk; it and `finish` raise its OSError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._fresh_bytes = 0
        self._behind_bytes = 0
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._waiting: Future[None] | None = None

    def wrote(self, size_bytes: int) -> None:
        """So much more was written, anywhere in the file."""
        self._fresh_bytes += size_bytes
        self._behind_bytes += size_bytes
        if self._behind_bytes >= BEHIND_BYTES:
            self._behind_bytes = self._fresh_bytes = 0
            self.finish()
            self._waiting = self._waiter.submit(self._let_go)
        elif self._fresh_bytes >= STEP_BYTES:
            self._fresh_bytes = 0
            _begin_writing(self._descriptor)

    def finish(self) -> None:
        """Return when what was waited for is on the disk."""
        if self._waiting is not None:
            self._waiting.result()
            self._waiting = None

    def close(self) -> None:
        self._waiter.shutdown()

    def _let_go(self) -> None:
        _write_out(self._descriptor)
        drop_pages(self._descriptor, 0, 0)


def _begin_writing(descriptor: int) -> None:
    if _RANGE is not None:
        _RANGE(descriptor, 0, 0, _WRITE)  # advice: what fails fails again where it is waited for


def _write_out(descriptor: int) -> None:
    """Wait for every page of a file that is not on its disk. Raises OSError."""
    if _RANGE is None:
        os.fdatasync(descriptor)
    elif _RANGE(descriptor, 0, 0, _WAIT_BEFORE | _WRITE | _WAIT_AFTER):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's call, which Python does not have; None elsewhere."""
    try:
        found = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return found


_RANGE = _sync_file_range()
