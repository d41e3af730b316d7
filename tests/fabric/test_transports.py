"""Links of every transport: round trips, and peers that send anything else than frames."""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from k3d.errors import ConfigError, FabricError, TimedOut
from k3d.fabric import InprocLink, Kind, Link, Reply, connect, listen, shm, tcp
from k3d.fabric.frame_buffers import FrameBuffers, mapped_bytes
from k3d.fabric.frames import CONTROL_BYTES, HEADER_BYTES, Frame, write_header
from tests.fabric.summing_spark import until

CAPACITY_BYTES = 1 << 20
SOCKETS = ["shm", "tcp"]


@contextmanager
def pair(transport: str, *, widen: bool = True) -> Iterator[tuple[Link, Link]]:
    """The Station's and the spark's end of one link."""
    listener = listen(transport, capacity_bytes=CAPACITY_BYTES)
    accepted: list[Link] = []
    door = threading.Thread(target=lambda: accepted.append(listener.accept(5.0).open(5.0)))
    door.start()
    station = connect(transport, listener.address, 5.0, capacity_bytes=CAPACITY_BYTES)
    door.join()
    listener.close()
    try:
        if widen:
            station.widen(CAPACITY_BYTES)
            accepted[0].widen(CAPACITY_BYTES)
        yield station, accepted[0]
    finally:
        station.close()
        accepted[0].close()


@pytest.mark.parametrize("transport", SOCKETS)
@pytest.mark.parametrize("size", [0, 1, 200, 65_536, CAPACITY_BYTES])
def test_round_trip(transport: str, size: int) -> None:
    payload = os.urandom(size)
    with pair(transport) as (station, spark):
        for sequence in range(3):
            # Larger frames than a socket buffer need a reader at the same time.
            sender = threading.Thread(
                target=station.send,
                args=(Kind.DISPATCH,),
                kwargs={
                    "epoch": 3,
                    "sequence": sequence,
                    "layer": 9,
                    "rows": 2,
                    "parts": (payload[: size // 3], memoryview(payload)[size // 3 :]),
                },
            )
            sender.start()
            frame = spark.receive(5.0)
            sender.join()
            assert (frame.kind, frame.epoch, frame.sequence) == (Kind.DISPATCH, 3, sequence)
            assert (frame.layer, frame.rows) == (9, 2)
            assert bytes(frame.payload) == payload
            spark.send(Kind.PARTIAL, sequence=sequence, compute_ns=5)
            answer = station.receive(5.0)
            assert (answer.kind, answer.sequence) == (Kind.PARTIAL, sequence)
            assert answer.compute_ns == 5


def test_inproc_round_trip() -> None:
    def answer(frame: Frame) -> Reply:
        return Reply(Kind.PARTIAL, (frame.payload, b"!"), frame.epoch, frame.layer, frame.rows, 11)

    link = InprocLink(answer, "spark-1", capacity_bytes=100)
    link.widen(100)
    with pytest.raises(TimedOut):
        link.receive(0.0)
    assert not link.poll()
    link.send(Kind.DISPATCH, epoch=2, sequence=8, layer=4, rows=1, parts=(b"row",))
    assert link.poll()
    frame = link.receive(1.0)
    assert (frame.kind, frame.sequence, frame.epoch, frame.layer) == (Kind.PARTIAL, 8, 2, 4)
    assert bytes(frame.payload) == b"row!"
    assert frame.compute_ns == 11
    with pytest.raises(FabricError, match="over the limit of 100"):
        link.send(Kind.DISPATCH, parts=(bytes(101),))
    link.shutdown()
    assert link.wait_gone(0.0)
    with pytest.raises(FabricError, match="closed"):
        link.send(Kind.PING)
    link.close()


@pytest.mark.parametrize("transport", SOCKETS)
def test_a_pong_leaves_the_partial_before_it_alone(transport: str) -> None:
    with pair(transport) as (station, spark):
        spark.send(Kind.PARTIAL, parts=(b"numbers that are still being read",))
        partial = station.receive(5.0)
        spark.send(Kind.PONG, parts=(b"x" * 500,))
        assert station.receive(5.0).kind is Kind.PONG
        assert bytes(partial.payload) == b"numbers that are still being read"


@pytest.mark.parametrize("transport", SOCKETS)
def test_a_payload_outlives_its_link(transport: str) -> None:
    with pair(transport) as (station, spark):
        spark.send(Kind.PARTIAL, parts=(b"kept",))
        partial = station.receive(5.0)
    assert bytes(partial.payload) == b"kept"


@pytest.mark.parametrize("transport", SOCKETS)
def test_timeouts_are_kept_and_harmless(transport: str) -> None:
    with pair(transport) as (station, spark):
        begun = monotonic()
        with pytest.raises(TimedOut):
            station.receive(0.05)
        assert monotonic() - begun > 0.04
        assert not station.poll()
        spark.send(Kind.PONG)
        assert station.receive(5.0).kind is Kind.PONG


@pytest.mark.parametrize("transport", SOCKETS)
def test_the_end_of_the_peer_is_seen_at_once(transport: str) -> None:
    with pair(transport) as (station, spark):
        assert not station.wait_gone(0.0)
        spark.close()
        assert station.wait_gone(5.0)
        with pytest.raises(FabricError, match="ended the link"):
            station.receive(5.0)


@pytest.mark.parametrize("transport", SOCKETS)
def test_shutdown_wakes_a_receiver(transport: str) -> None:
    with pair(transport) as (station, _):
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                station.receive(30.0)
            except FabricError as error:
                caught.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        station.shutdown()
        waiting.join(5.0)
        assert len(caught) == 1


@pytest.mark.parametrize("transport", SOCKETS)
def test_whoever_stops_receiving_can_still_say_why(transport: str) -> None:
    with pair(transport) as (station, spark):
        spark.stop_receiving()
        with pytest.raises(FabricError):
            spark.receive(5.0)
        spark.send(Kind.ERROR, parts=(b"why",))
        assert bytes(station.receive(5.0).payload) == b"why"


@pytest.mark.parametrize("transport", SOCKETS)
def test_no_data_frame_passes_before_the_handshake(transport: str) -> None:
    with pair(transport, widen=False) as (station, spark):
        with pytest.raises(FabricError, match="limit of 0 bytes"):
            station.send(Kind.LOAD, parts=(b"x",))
        station.widen(CAPACITY_BYTES)
        station.send(Kind.LOAD, parts=(b"x",))
        with pytest.raises(FabricError, match="the limit on this link is 0"):
            spark.receive(5.0)
        with pytest.raises(FabricError, match=str(CAPACITY_BYTES)):
            station.widen(CAPACITY_BYTES + 1)


@pytest.mark.parametrize("transport", SOCKETS)
def test_nobody_listening_and_address_taken(transport: str) -> None:
    listener = listen(transport, capacity_bytes=CAPACITY_BYTES)
    with pytest.raises(FabricError, match="cannot listen"):
        listen(transport, listener.address)
    with pytest.raises(TimedOut):
        listener.accept(0.0)
    listener.close()
    with pytest.raises(FabricError, match="nothing answers"):
        connect(transport, listener.address, 1.0)
    listen(transport, listener.address).close()


def test_unknown_transports_and_addresses_are_sentences() -> None:
    with pytest.raises(ConfigError, match="inproc"):
        listen("inproc")
    with pytest.raises(ConfigError, match="no tcp address"):
        connect("tcp", "spark-1", 1.0)
    with pytest.raises(ConfigError, match="ports end at 65535"):
        listen("tcp", "127.0.0.1:70000")


def test_tcp_listens_on_loopback_unless_told() -> None:
    listener = listen("tcp")
    assert listener.address.startswith("127.0.0.1:")
    listener.close()


# Peers that are not k3d


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


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 counted, not walked


@pytest.mark.parametrize("transport", SOCKETS)
def test_closed_links_leave_no_descriptor_and_no_name(transport: str) -> None:
    with pair(transport):
        pass
    before, shared = descriptors(), sorted(Path("/dev/shm").glob("*k3*"))
    for _ in range(3):
        with pair(transport) as (station, spark):
            station.send(Kind.DISPATCH, parts=(b"x",))
            assert bytes(spark.receive(5.0).payload) == b"x"
    until(lambda: descriptors() <= before, "every descriptor is closed")
    assert sorted(Path("/dev/shm").glob("*k3*")) == shared


@pytest.mark.parametrize("transport", SOCKETS)
def test_a_link_that_cannot_be_made_is_a_sentence_and_leaves_no_descriptor(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    listener = listen(transport, capacity_bytes=CAPACITY_BYTES)
    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr("k3d.fabric.frame_buffers.mmap.mmap", no_memory)
        with pytest.raises(FabricError, match="Cannot allocate memory"):
            connect(transport, listener.address, 5.0, capacity_bytes=CAPACITY_BYTES)
        with pytest.raises(FabricError, match="Cannot allocate memory"):
            listener.accept(5.0).open(5.0)
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", no_memory)
        with pytest.raises(FabricError, match="Cannot allocate memory"):
            connect(transport, listener.address, 5.0)
        with pytest.raises(FabricError, match="Cannot allocate memory"):
            listen(transport)
    until(lambda: descriptors() <= before, "every descriptor is closed")
    listener.close()


def test_untouched_lanes_cost_no_memory() -> None:
    def resident_bytes() -> int:
        statm = Path("/proc/self/statm").read_text(encoding="ascii")
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    buffers = FrameBuffers.private(1 << 30)
    assert resident_bytes() - before < 4 << 20
    buffers.close()
