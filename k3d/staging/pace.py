"""A rate limit in bytes a second, shared by all who ask it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

CHUNK_BYTES = 4 * 2**20
LEAST_CHUNK_BYTES = 64 * 2**10


class Pace:
    """`take` before moving bytes; it returns when they may be moved. None does not limit.

    Turns are given out in order, so that several senders share the rate evenly.
    """

    def __init__(
        self,
        bytes_per_s: float | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.bytes_per_s = bytes_per_s
        self._clock = clock
        self._wait = wait or threading.Event().wait
        self._lock = threading.Lock()
        self._free_s = clock()  # when the next taker may begin

    @property
    def chunk_bytes(self) -> int:
        """Most to take at once: an eighth of a second's worth, so that the flow stays even."""
        if self.bytes_per_s is None:
            return CHUNK_BYTES
        return min(CHUNK_BYTES, max(LEAST_CHUNK_BYTES, int(self.bytes_per_s / 8)))

    def take(self, size_bytes: int) -> None:
        if self.bytes_per_s is None:
            return
        with self._lock:
            now = self._clock()
            begin = max(now, self._free_s)
            self._free_s = begin + size_bytes / self.bytes_per_s
        if begin > now:
            self._wait(begin - now)
