"""Pieces between the network and the disk: while one is hashed and another written, the next comes
in."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from mmap import mmap

from k3d.experts.direct_write import direct_buffer

Step = Callable[[int, memoryview], None]
"""Does something with neighbouring records from an index on. Raises K3Error."""
_Queue = queue.SimpleQueue[tuple[int, memoryview] | None]


class Pieces:
    """Takes every piece through `steps`, each in a thread of its own; one buffer more than there
    are steps is in memory, never more.

    Use it as a context manager, which waits for the last piece. What a step raises is raised by the
    next call here, and no further piece is taken on.
    """

    def __init__(self, steps: Sequence[Step], buffer_bytes: int) -> None:
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(len(steps) + 1):
            self._free.put(direct_buffer(buffer_bytes))
        self._error: BaseException | None = None
        queues: list[_Queue] = [queue.SimpleQueue() for _ in steps]
        self._first = queues[0]
        self._threads = [
            threading.Thread(target=self._work, args=one, name="pieces", daemon=True)
            for one in zip(steps, queues, [*queues[1:], None], strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def buffer(self) -> memoryview:
        """One that is free, to be filled and put."""
        found = self._free.get()
        self._raise()
        return found

    def put(self, first: int, piece: memoryview) -> None:
        """A filled buffer, or the front of one: neighbouring records from index `first` on."""
        self._first.put((first, piece))

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._first.put(None)
        for thread in self._threads:
            thread.join()
        if kind is None:
            self._raise()

    def _work(self, step: Step, pieces: _Queue, onward: _Queue | None) -> None:
        while (found := pieces.get()) is not None:
            first, piece = found
            try:
                if self._error is None:
                    step(first, piece)
            except BaseException as error:  # noqa: BLE001 - raised again in the other thread
                self._error = error
            if onward is not None:
                onward.put(found)
            else:
                assert isinstance(piece.obj, mmap)
                self._free.put(memoryview(piece.obj))
        if onward is not None:
            onward.put(None)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
