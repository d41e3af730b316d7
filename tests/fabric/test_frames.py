"""The frame layout: what is written is read back, and nothing else is taken for a frame."""

from __future__ import annotations

import array
import random
import struct

import pytest

from k3d.errors import FabricError
from k3d.fabric import frames
from k3d.fabric.frame_buffers import FrameBuffers
from k3d.fabric.frames import HEADER_BYTES, Kind, open_frame, read_header, write_header

LIMIT = 1 << 16


def written(payload: bytes = b"some activations", kind: Kind = Kind.DISPATCH) -> bytearray:
    frame = bytearray(HEADER_BYTES) + payload
    write_header(memoryview(frame), kind, 7, 2**63 + 5, 92, 1024, 123_456_789)
    return frame


def read(frame: bytearray) -> frames.Frame:
    header = read_header(frame, "spark-1", LIMIT)
    if HEADER_BYTES + header.payload_bytes > len(frame):
        raise FabricError("the transport would wait for the rest")
    view = memoryview(frame)[: HEADER_BYTES + header.payload_bytes]
    return open_frame(view, header, "spark-1")


def test_header_is_64_bytes_and_golden() -> None:
    assert HEADER_BYTES == 64
    frame = written()
    assert frame[:8] == b"K3FB" + struct.pack("<HBB", 1, 10, 0)
    assert struct.unpack_from("<IIQH", frame, 8) == (7, 1024, 2**63 + 5, 92)
    assert struct.unpack_from("<Q", frame, 32) == (16,)


def test_every_field_comes_back() -> None:
    frame = read(written())
    assert (frame.kind, frame.epoch, frame.sequence) == (Kind.DISPATCH, 7, 2**63 + 5)
    assert (frame.layer, frame.rows, frame.compute_ns) == (92, 1024, 123_456_789)
    assert bytes(frame.payload) == b"some activations"


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_comes_back(kind: Kind) -> None:
    assert read(written(kind=kind)).kind is kind


@pytest.mark.parametrize("at", range(HEADER_BYTES))
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_anywhere_in_the_header_is_refused(at: int, bit: int) -> None:
    frame = written()
    frame[at] ^= 1 << bit
    with pytest.raises(FabricError):
        read(frame)


def test_a_flipped_bit_in_the_payload_is_refused() -> None:
    for at in range(16 * 8):
        frame = written()
        frame[HEADER_BYTES + at // 8] ^= 1 << at % 8
        with pytest.raises(FabricError, match="damaged"):
            read(frame)


def test_sizes_are_refused_before_anything_is_read() -> None:
    for size in (2**63, 2**64 - 1, LIMIT + 1):
        frame = written()
        struct.pack_into("<Q", frame, 32, size)
        with pytest.raises(FabricError, match=f"{size} bytes, the limit on this link is {LIMIT}"):
            read_header(frame, "spark-1", LIMIT)


def test_a_control_frame_has_its_own_limit() -> None:
    frame = written(kind=Kind.HELLO)
    struct.pack_into("<Q", frame, 32, frames.CONTROL_BYTES)
    with pytest.raises(FabricError, match="HELLO"):
        read_header(frame, "spark-1", 1 << 30)


def test_another_magic_and_version_are_named() -> None:
    frame = written()
    frame[:4] = b"HTTP"
    with pytest.raises(FabricError, match="spark-1 sent 48545450"):
        read_header(frame, "spark-1", LIMIT)
    frame = written()
    struct.pack_into("<H", frame, 4, 9)
    with pytest.raises(FabricError, match="speaks frame version 9, this k3d speaks 1"):
        read_header(frame, "spark-1", LIMIT)


def test_a_field_out_of_range_is_refused_by_the_sender() -> None:
    frame = memoryview(bytearray(HEADER_BYTES))
    with pytest.raises(FabricError, match="epoch -1"):
        write_header(frame, Kind.DISPATCH, -1, 0, 0, 0, 0)


def test_mutated_frames_give_the_error_and_nothing_else() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(4000):
        original = written(draw.randbytes(draw.randrange(200)), draw.choice(list(Kind)))
        frame = bytearray(original)
        for _ in range(draw.randint(1, 6)):
            match draw.randrange(3):
                case 0:
                    frame[draw.randrange(len(frame))] = draw.randrange(256)
                case 1:
                    del frame[draw.randrange(HEADER_BYTES, len(frame) + 1) :]
                case _:
                    at = draw.randrange(len(frame))
                    frame[at:at] = draw.randbytes(draw.randint(1, 9))
        try:
            got = read(frame)
        except FabricError:
            continue
        assert frame[:HEADER_BYTES][:56] == original[:56], f"seed {seed}"
        assert bytes(got.payload) == bytes(original[HEADER_BYTES:]), f"seed {seed}"


def test_lanes_refuse_more_than_was_agreed() -> None:
    buffers = FrameBuffers.private(1000)
    with pytest.raises(FabricError, match="over the limit of 0 bytes"):
        buffers.place(Kind.LOAD, (b"x",))
    buffers.limit_bytes = 1000
    assert len(buffers.place(Kind.LOAD, (bytes(600), bytes(400)))) == HEADER_BYTES + 1000
    with pytest.raises(FabricError, match="over the limit of 1000 bytes"):
        buffers.place(Kind.LOAD, (bytes(600), bytes(401)))
    with pytest.raises(FabricError, match="PING"):
        buffers.place(Kind.PING, (bytes(frames.CONTROL_BYTES),))
    buffers.close()


def test_lanes_take_buffers_of_any_element_type() -> None:
    buffers = FrameBuffers.private(100)
    buffers.limit_bytes = 100
    numbers = memoryview(array.array("d", (0.0, 1.5)))
    placed = buffers.place(Kind.PARTIAL, (numbers, b"", memoryview(b"abc")))
    assert bytes(placed[HEADER_BYTES:]) == struct.pack("<dd", 0.0, 1.5) + b"abc"
    placed.release()
    buffers.close()
