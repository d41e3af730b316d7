"""Transport tcp: the same frames over a TCP connection, for sparks on other hosts.

A frame is read in two steps: the header, which is checked, then as many bytes as it announces. A
receive that times out between bytes goes on where it stopped; a frame that stands still for
longer than STALL_S ends the link.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from time import monotonic
from typing import Any

from k3d.errors import ConfigError, FabricError, TimedOut
from k3d.fabric.frame_buffers import DEFAULT_CAPACITY_BYTES, FrameBuffers
from k3d.fabric.frames import (
    HEADER_BYTES,
    Buffer,
    Frame,
    Header,
    Kind,
    open_frame,
    read_header,
    write_header,
)
from k3d.fabric.link import BACKLOG, Caller, SocketCaller, SocketLink, accept_caller

LOOPBACK = "127.0.0.1"
STALL_S = 2.0
"""How long a begun frame may bring no further byte."""


class TcpLink(SocketLink):
    """A link over one TCP connection."""

    def __init__(self, sock: socket.socket, peer: str, capacity_bytes: int) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        super().__init__(
            sock, FrameBuffers.private(capacity_bytes), FrameBuffers.private(capacity_bytes), peer
        )
        self._head = memoryview(bytearray(HEADER_BYTES))
        self._header: Header | None = None
        self._frame = self._head
        self._filled = 0
        self._moved = 0.0

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
        frame = self._outgoing.place(kind, parts)
        write_header(frame, kind, epoch, sequence, layer, rows, compute_ns)
        self._send_all(frame)

    def receive(self, timeout_s: float | None) -> Frame:
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while True:
            while self._filled < len(self._frame):
                self._fill(deadline)
            if self._header is not None:
                frame, header = self._frame, self._header
                self._frame, self._header, self._filled = self._head, None, 0
                return open_frame(frame, header, self.peer)
            self._begin_payload()

    def _begin_payload(self) -> None:
        header = read_header(self._head, self.peer, self._incoming.limit_bytes)
        buffer = self._incoming.buffer(header.kind)
        buffer[:HEADER_BYTES] = self._head
        self._header = header
        self._frame = buffer[: HEADER_BYTES + header.payload_bytes]

    def _fill(self, deadline: float | None) -> None:
        """Read some more bytes of the frame at hand."""
        begun = self._filled > 0
        stalled_at = self._moved + STALL_S
        # A begun frame has its own clock, so that a trickle cannot hold a waiting daemon for ever.
        soonest = min(deadline or stalled_at, stalled_at) if begun else deadline
        try:
            self._await_bytes(soonest)
        except TimedOut:
            if begun and monotonic() >= stalled_at:
                raise FabricError(
                    f"{self.peer} stopped {self._filled} bytes into a frame of "
                    f"{len(self._frame)} for {STALL_S:.1f} s"
                ) from None
            raise
        try:
            count = self._sock.recv_into(self._frame[self._filled :])
        except BlockingIOError:
            return
        except OSError as error:
            raise self._broken(error) from None
        if count == 0:
            raise self._broken()
        self._filled += count
        self._moved = monotonic()


class TcpListener:
    """Listens on one host and port."""

    def __init__(self, address: str, capacity_bytes: int) -> None:
        host, port = _host_port(address)
        self._capacity_bytes = capacity_bytes
        try:
            self._sock = socket.create_server(
                (host, port),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=BACKLOG,
            )
        except OSError as error:
            raise FabricError(
                f"cannot listen on tcp {host}:{port}: {error.strerror or error}",
                hint="choose another fabric_port in the pod description, or 0 for a free one",
            ) from None
        self.address = _address(self._sock.getsockname())

    def accept(self, timeout_s: float) -> Caller:
        sock, caller = accept_caller(self._sock, self.address, timeout_s)
        return SocketCaller(sock, f"tcp caller {_address(caller)}", self._link)

    def _link(self, sock: socket.socket, peer: str, timeout_s: float) -> TcpLink:
        del timeout_s  # the caller has nothing to do for it
        return _link(sock, peer, self._capacity_bytes)

    def close(self) -> None:
        self._sock.close()


def listen(address: str = "", *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> TcpListener:
    """Listen on `address` ("host:port"; loopback and a free port for the parts left out)."""
    return TcpListener(address, capacity_bytes)


def connect(
    address: str, timeout_s: float, *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES
) -> TcpLink:
    """Connect to the spark at "host:port". Raises FabricError when nothing answers there."""
    host, port = _host_port(address)
    try:
        sock = socket.create_connection((host, port), timeout=timeout_s)
    except OSError as error:
        raise FabricError(
            f"nothing answers on tcp {host}:{port}: {error.strerror or error}",
            hint="is the spark running? k3ctl pod status",
        ) from None
    return _link(sock, f"tcp {host}:{port}", capacity_bytes)


def _link(sock: socket.socket, peer: str, capacity_bytes: int) -> TcpLink:
    """The link over a connected socket, which is closed when that fails."""
    try:
        return TcpLink(sock, peer, capacity_bytes)
    except OSError as error:
        sock.close()
        raise FabricError(f"no link to {peer} could be made: {error.strerror or error}") from None


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() and address:
        raise ConfigError(f"{address!r} is no tcp address", hint='write it as "host:port"')
    number = int(port or 0)
    if number > 65535:
        raise ConfigError(f"{address!r} names port {number}; ports end at 65535")
    return host.strip("[]") or LOOPBACK, number


def _address(name: Any) -> str:
    """\"host:port\" of what `socket` calls an address of TCP."""
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
