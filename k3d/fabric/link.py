"""A link: one Station and one spark, frames both ways, one request outstanding.

`Link` is what a transport offers. `SocketLink` is the part that shm and tcp share: a socket that
says when there is something to read and when the peer is gone.
"""

from __future__ import annotations

import errno
import math
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Protocol

from k3d.errors import FabricError, TimedOut
from k3d.fabric.frame_buffers import FrameBuffers
from k3d.fabric.frames import Buffer, Frame, Kind

BACKLOG = 128
"""Callers that may wait at a door that is busy for a moment."""
SEND_TIMEOUT_S = 2.0
"""How long a peer may leave its socket full before the link counts as broken."""


class Link(Protocol):
    """One end of a link. One thread sends and receives at a time; see each method for others."""

    peer: str

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
        """Send one frame. Raises FabricError when it is too large or the peer is gone."""
        ...

    def receive(self, timeout_s: float | None) -> Frame:
        """The next frame. Raises TimedOut when none came, FabricError when the link is of no use.

        Only a TimedOut leaves the link usable.
        """
        ...

    def poll(self) -> bool:
        """Whether `receive` would find something now."""
        ...

    def widen(self, limit_bytes: int) -> None:
        """Allow data frames of up to `limit_bytes` of payload; before this, control frames only."""
        ...

    @property
    def capacity_bytes(self) -> int:
        """Most that `widen` may be asked for."""
        ...

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the peer, or `shutdown`, ended the link. Reads nothing; any one thread."""
        ...

    def shutdown(self) -> None:
        """End the link and wake whoever waits on it. Any thread, any number of times."""
        ...

    def stop_receiving(self) -> None:
        """End the link for whoever receives on it; a last frame may still be sent. Any thread."""
        ...

    def close(self) -> None:
        """Release what the link holds. By the thread that owns it, when no other uses it."""
        ...


class Caller(Protocol):
    """Somebody at the door, of whom nothing is known yet."""

    peer: str

    def open(self, timeout_s: float) -> Link:
        """The link to the caller, who may have to do something for it. Once.

        Raises FabricError when the caller does not, or is no peer for a link; it is closed then.
        """
        ...

    def shutdown(self) -> None:
        """End the caller or its link and wake whoever waits on it. Any thread, until it closes."""
        ...


class Listener(Protocol):
    """Where a spark waits for its Station."""

    address: str

    def accept(self, timeout_s: float) -> Caller:
        """The next caller; waits for nothing but that one comes.

        Raises TimedOut when none came, FabricError when this process cannot take one.
        """
        ...

    def close(self) -> None: ...


class SocketCaller:
    """A caller whose link is made from its socket by `make_link(sock, peer, timeout_s)`."""

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        make_link: Callable[[socket.socket, str, float], Link],
    ) -> None:
        self._sock = sock
        self._make_link = make_link
        self.peer = peer

    def open(self, timeout_s: float) -> Link:
        return self._make_link(self._sock, self.peer, timeout_s)

    def shutdown(self) -> None:
        with suppress(OSError):  # it may have gone by itself
            self._sock.shutdown(socket.SHUT_RDWR)


def accept_caller(
    listening: socket.socket, address: str, timeout_s: float
) -> tuple[socket.socket, object]:
    """The next socket and where it comes from. Raises as Listener.accept."""
    try:
        listening.settimeout(timeout_s)
        return listening.accept()
    except (TimeoutError, BlockingIOError):
        raise TimedOut(f"no Station called {address} in the time given") from None
    except OSError as error:
        full = error.errno in (errno.EMFILE, errno.ENFILE)
        raise FabricError(
            f"cannot accept on {address}: {error.strerror or error}",
            hint="raise the limit of open files: ulimit -n" if full else None,
        ) from None


class Waiter:
    """Waits for one event mask on one socket until a deadline."""

    def __init__(self, sock: socket.socket, events: int) -> None:
        self._poll = select.poll()
        self._poll.register(sock, events)

    def until(self, deadline: float | None) -> bool:
        """True when the event came, False when the monotonic clock reached `deadline`."""
        if deadline is None:
            return bool(self._poll.poll())
        left_ms = math.ceil((deadline - monotonic()) * 1000)
        return bool(self._poll.poll(left_ms if left_ms > 0 else 0))


class SocketLink:
    """What links over a socket have in common; a transport adds `send` and `receive`."""

    def __init__(
        self, sock: socket.socket, outgoing: FrameBuffers, incoming: FrameBuffers, peer: str
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._outgoing = outgoing
        self._incoming = incoming
        self._readable = Waiter(sock, select.POLLIN)
        self._writable = Waiter(sock, select.POLLOUT)
        # A second object for hang-ups: one poll object serves one thread at a time.
        self._hangup = Waiter(sock, select.POLLRDHUP)
        self._down = False
        self.peer = peer

    @property
    def capacity_bytes(self) -> int:
        return min(self._outgoing.capacity_bytes, self._incoming.capacity_bytes)

    def widen(self, limit_bytes: int) -> None:
        if not 0 < limit_bytes <= self.capacity_bytes:
            raise FabricError(
                f"data frames of {limit_bytes} bytes were asked of the link to {self.peer}, "
                f"which holds {self.capacity_bytes}"
            )
        self._outgoing.limit_bytes = self._incoming.limit_bytes = limit_bytes

    def poll(self) -> bool:
        return self._readable.until(0.0)

    def wait_gone(self, timeout_s: float) -> bool:
        return self._down or self._hangup.until(monotonic() + timeout_s) or self._down

    def shutdown(self) -> None:
        self._down = True
        # An error says that the peer ended it first or that it is closed: either way it is down.
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def stop_receiving(self) -> None:
        self._down = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.shutdown()
        self._sock.close()
        self._outgoing.close()
        self._incoming.close()

    def _await_bytes(self, deadline: float | None) -> None:
        if not self._readable.until(deadline):
            raise TimedOut(f"nothing came from {self.peer} in the time given")

    def _send_all(self, data: Buffer) -> None:
        """Put every byte of `data` on the socket, within SEND_TIMEOUT_S."""
        left = memoryview(data)
        deadline: float | None = None
        while True:
            try:
                left = left[self._sock.send(left) :]
                deadline = None
            except BlockingIOError:
                deadline = deadline or monotonic() + SEND_TIMEOUT_S
                if not self._writable.until(deadline):
                    raise FabricError(
                        f"{self.peer} took no bytes for {SEND_TIMEOUT_S:.1f} s"
                    ) from None
                continue
            except OSError as error:
                raise self._broken(error) from None
            if not left:
                return

    def _broken(self, error: OSError | None = None) -> FabricError:
        how = f": {error.strerror}" if error is not None and error.strerror else ""
        return FabricError(f"{self.peer} ended the link{how}", hint="its process may have ended")
