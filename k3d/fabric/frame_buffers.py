"""The memory in which the frames of one direction of a link lie.

A link carries one request and its answer at a time, so one place for a frame is enough. There are
two, a control buffer and a data buffer: a ping that is answered while somebody still reads a
partial must not overwrite it. Memory is mapped, not allocated: pages that no frame has used cost
nothing.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress

from k3d.errors import FabricError
from k3d.fabric.frames import CONTROL_BYTES, DATA_KINDS, HEADER_BYTES, Buffer, Kind

DEFAULT_CAPACITY_BYTES = 64 * 1024 * 1024


class FrameBuffers:
    """A control buffer of 4 KiB and a data buffer of `capacity_bytes` of payload.

    `limit_bytes` is what data frames may carry now: nothing until the handshake has agreed.
    """

    def __init__(self, memory: mmap.mmap, capacity_bytes: int) -> None:
        view = memoryview(memory)
        self._memory = memory
        self._control = view[:CONTROL_BYTES]
        self._data = view[CONTROL_BYTES:]
        self.capacity_bytes = capacity_bytes
        self.limit_bytes = 0

    @classmethod
    def private(cls, capacity_bytes: int) -> FrameBuffers:
        """Buffers in this process's own memory."""
        return cls(mmap.mmap(-1, mapped_bytes(capacity_bytes)), capacity_bytes)

    def buffer(self, kind: Kind) -> memoryview:
        """Where a frame of `kind` lies."""
        return self._data if kind in DATA_KINDS else self._control

    def place(self, kind: Kind, parts: Sequence[Buffer]) -> memoryview:
        """Copy `parts` behind the room for a header; return header room and payload.

        Parts are contiguous buffers of any element type. Raises FabricError when they are more
        than a frame of this kind may carry.
        """
        buffer = self.buffer(kind)
        most = HEADER_BYTES + self.limit_bytes if kind in DATA_KINDS else CONTROL_BYTES
        end = HEADER_BYTES
        for part in parts:
            view = memoryview(part)
            size_bytes = view.nbytes
            if size_bytes == 0:
                continue
            if end + size_bytes > most:
                raise FabricError(
                    f"a {kind.name} frame of at least {end + size_bytes - HEADER_BYTES} bytes is "
                    f"over the limit of {most - HEADER_BYTES} bytes agreed on this link",
                    hint="raise capacity_bytes on both ends or send fewer rows",
                )
            buffer[end : end + size_bytes] = view if view.format == "B" else view.cast("B")
            end += size_bytes
        return buffer[:end]

    def close(self) -> None:
        """Give the memory back, once nobody reads a payload in it any more."""
        self._control.release()
        self._data.release()
        # A payload handed out may still be in use; then the mapping goes with its last view.
        with suppress(BufferError):
            self._memory.close()


def mapped_bytes(capacity_bytes: int) -> int:
    """Bytes of memory that buffers of this capacity take."""
    return CONTROL_BYTES + HEADER_BYTES + capacity_bytes
