"""Peers that are not k3d: what they send is a sentence, never a hang or a frame."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from k3d.errors import FabricError, TimedOut
from k3d.fabric import Kind, Link, shm, tcp
from k3d.fabric.frame_buffers import mapped_bytes
from k3d.fabric.frames import CONTROL_BYTES, HEADER_BYTES, write_header

CAPACITY_BYTES = 1 << 20


@contextmanager
def tcp_caller() -> Iterator[tuple[socket.socket, Link]]:
    listener = tcp.listen(capacity_bytes=CAPACITY_BYTES)
    host, port = listener.address.split(":")
    with socket.create_connection((host, int(port)), timeout=5.0) as caller:
        link = listener.accept(5.0).open(5.0)
        link.widen(CAPACITY_BYTES)
        listener.close()
        try:
            yield caller, link
        finally:
            link.close()


def frame_bytes(payload: bytes = b"payload") -> bytearray:
    frame = bytearray(HEADER_BYTES) + payload
    write_header(memoryview(frame), Kind.DISPATCH, 1, 2, 3, 4, 5)
    return frame


def test_tcp_takes_a_frame_byte_by_byte() -> None:
    with tcp_caller() as (caller, link):
        for byte in frame_bytes():
            with pytest.raises(TimedOut):
                link.receive(0.0)
            caller.sendall(bytes((byte,)))
        assert bytes(link.receive(5.0).payload) == b"payload"


def test_tcp_frame_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "STALL_S", 0.05)
    with tcp_caller() as (caller, link):
        caller.sendall(frame_bytes()[:40])
        with pytest.raises(FabricError, match="stopped 40 bytes into a frame of 64"):
            link.receive(30.0)


def test_tcp_truncated_frame_and_garbage() -> None:
    with tcp_caller() as (caller, link):
        caller.sendall(frame_bytes()[:-1])
        caller.shutdown(socket.SHUT_WR)
        with pytest.raises(FabricError, match="ended the link"):
            link.receive(5.0)
    with tcp_caller() as (caller, link):
        caller.sendall(b"GET / HTTP/1.1\r\nHost: spark-1\r\n".ljust(HEADER_BYTES))
        with pytest.raises(FabricError, match="where a frame begins"):
            link.receive(5.0)


def test_tcp_mutated_frames_never_hang() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(150):
        with tcp_caller() as (caller, link):
            original = frame_bytes(draw.randbytes(draw.randrange(300)))
            frame = bytearray(original)
            frame[draw.randrange(len(frame))] ^= draw.randint(1, 255)
            caller.sendall(frame[: draw.randint(1, len(frame))])
            caller.shutdown(socket.SHUT_WR)
            with pytest.raises(FabricError):
                link.receive(5.0)


@contextmanager
def shm_caller(
    *,
    words: bytes | None = None,
    size_bytes: int = mapped_bytes(CAPACITY_BYTES),
    seal: bool = True,
    memory: bool = True,
) -> Iterator[tuple[socket.socket, shm.ShmListener, int]]:
    """A caller that opens as told instead of as it should."""
    listener = shm.listen(capacity_bytes=CAPACITY_BYTES)
    fd = os.memfd_create("caller", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    if seal:
        shm.fcntl.fcntl(fd, shm.fcntl.F_ADD_SEALS, shm.NO_RESIZE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect(b"\x00" + listener.address.encode())
        if words is None:
            words = shm.EXCHANGE.pack(shm.EXCHANGE_MAGIC, CAPACITY_BYTES)
        if words:
            socket.send_fds(caller, [words], [fd] if memory else [])
        try:
            yield caller, listener, fd
        finally:
            os.close(fd)
            listener.close()


@pytest.mark.parametrize(
    ("opening", "sentence"),
    [
        ({"words": b"hello"}, "did not open with its memory"),
        ({"words": b"x" * 16}, "which is no k3d of this version"),
        ({"words": shm.EXCHANGE.pack(shm.EXCHANGE_MAGIC, 2**63)}, "announced buffers of"),
        ({"memory": False}, "did not open with its memory"),
        ({"size_bytes": 4096}, "shared 4096 bytes and announced"),
        ({"seal": False}, "could still shrink"),
    ],
)
def test_shm_callers_that_open_wrongly(opening: dict[str, object], sentence: str) -> None:
    with shm_caller(**opening) as (_, listener, _), pytest.raises(FabricError, match=sentence):  # type: ignore[arg-type]
        listener.accept(5.0).open(5.0)


def test_shm_silent_caller_is_given_up() -> None:
    with (
        shm_caller(words=b"") as (_, listener, _),
        pytest.raises(FabricError, match="did not share its memory"),
    ):
        listener.accept(5.0).open(0.05)


def test_a_caller_that_is_turned_away_ends_who_waits_for_it() -> None:
    with shm_caller(words=b"") as (_, listener, _):
        caller = listener.accept(5.0)
        caught: list[FabricError] = []

        def wait() -> None:
            try:
                caller.open(60.0)
            except FabricError as error:
                caught.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        caller.shutdown()
        waiting.join(5.0)
        assert len(caught) == 1


def test_shm_other_user_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    with shm_caller() as (_, listener, _), pytest.raises(FabricError, match="to user 54321"):
        listener.accept(5.0).open(5.0)


def test_shm_damaged_frames_and_bells() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    with shm_caller() as (caller, listener, fd):
        link = listener.accept(5.0).open(5.0)
        link.widen(CAPACITY_BYTES)
        for _ in range(2000):
            frame = frame_bytes(draw.randbytes(draw.randrange(300)))
            frame[draw.randrange(len(frame))] ^= draw.randint(1, 255)
            os.pwrite(fd, frame, CONTROL_BYTES)
            caller.send(shm.DATA_BELL)
            with pytest.raises(FabricError):
                link.receive(5.0)
        good = frame_bytes()
        os.pwrite(fd, good, CONTROL_BYTES)
        caller.send(shm.DATA_BELL)
        assert bytes(link.receive(5.0).payload) == b"payload"
        # The same frame does not open twice, and a data frame not in the control buffer.
        caller.send(shm.DATA_BELL)
        with pytest.raises(FabricError, match="damaged"):
            link.receive(5.0)
        os.pwrite(fd, good, 0)
        caller.send(shm.CONTROL_BELL)
        with pytest.raises(FabricError, match="wrong buffer"):
            link.receive(5.0)
        caller.send(b"?")
        with pytest.raises(FabricError, match="no doorbell"):
            link.receive(5.0)
        link.close()
