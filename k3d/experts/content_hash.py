"""The hash that names the bytes of a record, with several cores where it has them and they help."""

from __future__ import annotations

import os

from blake3 import blake3

SPREAD_BYTES = 2**20
"""Smaller pieces are hashed sooner than threads are woken."""
MANY_CORES = 4
"""With fewer, who reads, writes and hashes share them already."""


def content_hash(data: bytes | bytearray | memoryview) -> bytes:
    """blake3 of `data`, 32 bytes."""
    threads = blake3.AUTO if len(data) >= SPREAD_BYTES and many_cores() else 1
    return blake3(data, max_threads=threads).digest()


def many_cores() -> bool:
    """Whether this process may use cores that nobody else waits for."""
    return len(os.sched_getaffinity(0)) >= MANY_CORES
