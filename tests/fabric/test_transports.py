"""Links of every transport: round trips, deadlines, ends."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from k3d.errors import ConfigError, FabricError, TimedOut
from k3d.fabric import InprocLink, Kind, Link, Reply, connect, listen
from k3d.fabric.frame_buffers import FrameBuffers
from k3d.fabric.frames import Frame
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
