"""Pieces between the network and the disk: while one is hashed and written the next comes in."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

BUFFERS = 3
Put = Callable[[int, memoryview], None]
"""Takes neighbouring records from an index on. Raises K3Error."""


class Pieces:
    """Hands pieces to `put` in a thread of its own; BUFFERS of them are in memory, never more.

    Use it as a context manager, which waits for the last piece. What `put` raises is raised by the
    next call here.
    """

    def __init__(self, put: Put, buffer_bytes: int) -> None:
        self._put = put
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[int, memoryview] | None] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(memoryview(bytearray(buffer_bytes)))
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="pieces", daemon=True)
        self._thread.start()

    def buffer(self) -> memoryview:
        """One that is free, to be filled and put."""
        found = self._free.get()
        self._raise()
        return found

    def put(self, first: int, piece: memoryview) -> None:
        """A filled buffer, or the front of one: neighbouring records from index `first` on."""
        self._full.put((first, piece))

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._full.put(None)
        self._thread.join()
        if kind is None:
            self._raise()

    def _work(self) -> None:
        while (found := self._full.get()) is not None:
            first, piece = found
            try:
                if self._error is None:
                    self._put(first, piece)
            except BaseException as error:  # noqa: BLE001 - raised again in the other thread
                self._error = error
            assert isinstance(piece.obj, bytearray)
            self._free.put(memoryview(piece.obj))

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
