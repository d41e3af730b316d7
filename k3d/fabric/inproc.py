"""Transport inproc: the spark is a callable in the Station's own process.

There is no queue and no thread: `receive` runs the spark on the frame that `send` left. What a
frame may carry and when it may be sent is the same as on the other transports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic_ns

from k3d.errors import FabricError, TimedOut
from k3d.fabric.frame_buffers import DEFAULT_CAPACITY_BYTES, FrameBuffers
from k3d.fabric.frames import HEADER_BYTES, Buffer, Frame, Kind, Reply


class InprocLink:
    """The Station's end of a link to `answer`, which serves one frame in the caller's thread."""

    def __init__(
        self,
        answer: Callable[[Frame], Reply],
        peer: str,
        *,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
    ) -> None:
        self.peer = peer
        self._answer = answer
        self._request: Frame | None = None
        self._outgoing = FrameBuffers.private(capacity_bytes)
        self._incoming = FrameBuffers.private(capacity_bytes)
        self._down = threading.Event()

    @property
    def capacity_bytes(self) -> int:
        return self._outgoing.capacity_bytes

    def widen(self, limit_bytes: int) -> None:
        if not 0 < limit_bytes <= self.capacity_bytes:
            raise FabricError(
                f"data frames of {limit_bytes} bytes were asked of the link to {self.peer}, "
                f"which holds {self.capacity_bytes}"
            )
        self._outgoing.limit_bytes = self._incoming.limit_bytes = limit_bytes

    def send(
        self,
        kind: Kind,
        *,
        epoch: int = 0,
        sequence: int = 0,
        layer: int = 0,
        rows: int = 0,
        compute_ns: int = 0,
        parts: Sequence[Buffer] = (),
    ) -> None:
        if self._down.is_set():
            raise FabricError(f"the link to {self.peer} is closed")
        payload = self._outgoing.place(kind, parts)[HEADER_BYTES:]
        self._request = Frame(
            kind, epoch, sequence, layer, rows, monotonic_ns(), compute_ns, payload
        )

    def receive(self, timeout_s: float | None) -> Frame:
        if self._down.is_set():
            raise FabricError(f"the link to {self.peer} is closed")
        request, self._request = self._request, None
        if request is None:
            raise TimedOut(f"nothing was asked of {self.peer}, so nothing comes")
        reply = self._answer(request)
        payload = self._incoming.place(reply.kind, reply.parts)[HEADER_BYTES:]
        return Frame(
            reply.kind,
            reply.epoch,
            request.sequence,
            reply.layer,
            reply.rows,
            monotonic_ns(),
            reply.compute_ns,
            payload,
        )

    def poll(self) -> bool:
        return self._request is not None

    def wait_gone(self, timeout_s: float) -> bool:
        return self._down.wait(timeout_s)

    def shutdown(self) -> None:
        self._down.set()

    def stop_receiving(self) -> None:
        self._down.set()

    def close(self) -> None:
        self.shutdown()
        self._outgoing.close()
        self._incoming.close()
