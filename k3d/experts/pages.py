"""The page cache, which weights that are read or written once must not fill."""

from __future__ import annotations

import os
from contextlib import suppress

WORTH_DROPPING_BYTES = 2**20
"""Smaller pieces share pages with their neighbours: dropping them gains nothing."""


def drop_pages(descriptor: int, offset: int, size_bytes: int) -> None:
    """Let the kernel forget clean pages of a file; written ones stay until they are synced."""
    with suppress(OSError):  # advice that a file system does not take
        os.posix_fadvise(descriptor, offset, size_bytes, os.POSIX_FADV_DONTNEED)


def read_ahead(descriptor: int, offset: int, size_bytes: int) -> None:
    """Let the disk begin with what will be read next."""
    with suppress(OSError):
        os.posix_fadvise(descriptor, offset, size_bytes, os.POSIX_FADV_WILLNEED)
