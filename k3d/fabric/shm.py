"""Transport shm: frames in shared memory, one doorbell byte on a Unix socket to wake the peer.

Each end makes a memfd for what it sends and passes it over the socket. A memfd has no name and the
socket lives in the abstract namespace, so a killed process leaves nothing behind, and its end of
the socket closes at once, which is how the peer learns of it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic

from k3d.errors import FabricError
from k3d.fabric.frame_buffers import DEFAULT_CAPACITY_BYTES, FrameBuffers, mapped_bytes
from k3d.fabric.frames import (
    DATA_KINDS,
    HEADER_BYTES,
    Buffer,
    Frame,
    Kind,
    open_frame,
    read_header,
    write_header,
)
from k3d.fabric.link import BACKLOG, Caller, SocketCaller, SocketLink, accept_caller

EXCHANGE = struct.Struct("<8sQ")
"""What goes with a memfd: the magic below and the capacity of its data buffer in bytes."""
EXCHANGE_MAGIC = b"K3SHM\x00\x00\x01"
EXCHANGE_TIMEOUT_S = 1.0
MOST_CAPACITY_BYTES = 1 << 32
CREDENTIALS = struct.Struct("3i")
CONTROL_BELL, DATA_BELL = b"c", b"d"
NO_RESIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class ShmLink(SocketLink):
    """A link whose frames never pass through the kernel; only doorbells do."""

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
        self._send_all(DATA_BELL if kind in DATA_KINDS else CONTROL_BELL)

    def receive(self, timeout_s: float | None) -> Frame:
        self._await_bytes(None if timeout_s is None else monotonic() + timeout_s)
        try:
            bell = self._sock.recv(2)
        except OSError as error:
            raise self._broken(error) from None
        if not bell:
            raise self._broken()
        if bell not in (CONTROL_BELL, DATA_BELL):
            raise FabricError(f"{self.peer} rang {bell.hex()}, which is no doorbell")
        buffer = self._incoming.buffer(Kind.PARTIAL if bell == DATA_BELL else Kind.PING)
        header = read_header(buffer, self.peer, self._incoming.limit_bytes)
        if (header.kind in DATA_KINDS) != (bell == DATA_BELL):
            raise FabricError(f"{self.peer} put a {header.kind.name} frame in the wrong buffer")
        return open_frame(buffer[: HEADER_BYTES + header.payload_bytes], header, self.peer)


class ShmListener:
    """Listens on a Unix socket of the abstract namespace, for processes of the same user."""

    def __init__(self, address: str, capacity_bytes: int) -> None:
        self.address = address or f"k3-{secrets.token_hex(8)}"
        self._capacity_bytes = capacity_bytes
        try:
            with ExitStack() as undo:
                self._sock = undo.enter_context(_new_socket())
                self._sock.bind(_abstract(self.address))
                self._sock.listen(BACKLOG)
                undo.pop_all()
        except OSError as error:
            raise FabricError(
                f"cannot listen on shm address {self.address}: {error.strerror or error}",
                hint="another k3d holds it: k3ctl pod status",
            ) from None

    def accept(self, timeout_s: float) -> Caller:
        sock, _ = accept_caller(self._sock, self.address, timeout_s)
        return SocketCaller(sock, f"shm caller of {self.address}", self._exchange)

    def _exchange(self, sock: socket.socket, peer: str, timeout_s: float) -> ShmLink:
        return _exchange(sock, peer, self._capacity_bytes, timeout_s)

    def close(self) -> None:
        self._sock.close()


def listen(address: str = "", *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> ShmListener:
    """Listen on `address`, a name in the abstract namespace; a random one when empty."""
    return ShmListener(address, capacity_bytes)


def connect(
    address: str, timeout_s: float, *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES
) -> ShmLink:
    """Connect to the spark that listens on `address`. Raises FabricError when none does."""
    try:
        with ExitStack() as undo:
            sock = undo.enter_context(_new_socket())
            sock.settimeout(timeout_s)
            sock.connect(_abstract(address))
            undo.pop_all()
    except OSError as error:
        raise FabricError(
            f"nothing answers on shm address {address}: {error.strerror or error}",
            hint="is the spark running? k3ctl pod status",
        ) from None
    return _exchange(sock, f"shm {address}", capacity_bytes, EXCHANGE_TIMEOUT_S)


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _abstract(address: str) -> bytes:
    return b"\x00" + address.encode()


def _exchange(sock: socket.socket, peer: str, capacity_bytes: int, timeout_s: float) -> ShmLink:
    """Swap memfds with the peer and build the link; the socket is closed when that fails."""
    try:
        _check_user(sock, peer)
        sock.settimeout(timeout_s)
        outgoing, own_fd = _make_buffers(capacity_bytes)
        try:
            words = EXCHANGE.pack(EXCHANGE_MAGIC, capacity_bytes)
            socket.send_fds(sock, [words], [own_fd])
        finally:
            os.close(own_fd)
        return ShmLink(sock, outgoing, _receive_buffers(sock, peer), peer)
    except OSError as error:
        sock.close()
        raise FabricError(
            f"{peer} did not share its memory within {timeout_s:.1f} s: {error.strerror or error}"
        ) from None
    except FabricError:
        sock.close()
        raise


def _check_user(sock: socket.socket, peer: str) -> None:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(credentials)
    if uid != os.getuid():
        raise FabricError(
            f"{peer} (pid {pid}) belongs to user {uid}, this k3d to user {os.getuid()}",
            hint="run every node of one host as the same user, or use transport tcp",
        )


def _make_buffers(capacity_bytes: int) -> tuple[FrameBuffers, int]:
    fd = os.memfd_create("k3-frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    size_bytes = mapped_bytes(capacity_bytes)
    try:
        os.ftruncate(fd, size_bytes)
        # A peer that shrank the file would kill this process with SIGBUS: seal it.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, NO_RESIZE)
        return FrameBuffers(mmap.mmap(fd, size_bytes), capacity_bytes), fd
    except OSError:
        os.close(fd)
        raise


def _receive_buffers(sock: socket.socket, peer: str) -> FrameBuffers:
    words, fds, _, _ = socket.recv_fds(sock, EXCHANGE.size + 1, 4, socket.MSG_CMSG_CLOEXEC)
    try:
        if not words:
            raise FabricError(f"{peer} ended the link before it shared its memory")
        if len(words) != EXCHANGE.size or len(fds) != 1:
            raise FabricError(f"{peer} did not open with its memory: {len(words)} bytes came")
        magic, capacity_bytes = EXCHANGE.unpack(words)
        if magic != EXCHANGE_MAGIC:
            raise FabricError(f"{peer} opened with {magic.hex()}, which is no k3d of this version")
        if not 0 < capacity_bytes <= MOST_CAPACITY_BYTES:
            raise FabricError(f"{peer} announced buffers of {capacity_bytes} bytes")
        size_bytes = mapped_bytes(capacity_bytes)
        found_bytes = os.fstat(fds[0]).st_size
        if found_bytes != size_bytes:
            raise FabricError(f"{peer} shared {found_bytes} bytes and announced {size_bytes}")
        if fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) & NO_RESIZE != NO_RESIZE:
            raise FabricError(f"{peer} shared memory that it could still shrink")
        return FrameBuffers(mmap.mmap(fds[0], size_bytes), capacity_bytes)
    finally:
        for fd in fds:
            os.close(fd)
