"""Frames: what travels on a link between the Station and a spark.

A frame is one 64-byte little-endian header, laid out in `LAYOUT`, and a payload of bytes that this
package does not look into. The checksum is xxh3_64 over the header with a zero checksum followed
by the payload. Every field is checked before a byte of payload is read, so that a length of 2^63
costs nothing but the link.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from time import monotonic_ns
from typing import NamedTuple, TypeAlias

import msgspec
import xxhash

from k3d.errors import FabricError

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = b"K3FB"
VERSION = 1

LAYOUT: tuple[tuple[str, str], ...] = (
    ("magic", "4s"),  # K3FB
    ("version", "H"),  # of this layout
    ("kind", "B"),  # Kind
    ("flags", "B"),  # none are defined: zero
    ("epoch", "I"),  # of the map that a dispatch is split by, or that a load is for
    ("rows", "I"),  # rows of a dispatch or partial, records of a load or fill, slots of a retire
    ("sequence", "Q"),  # of the request; its answer carries the same
    ("layer", "H"),  # model layer of a dispatch or partial
    ("reserved", "6s"),  # zero
    ("payload_bytes", "Q"),
    ("sent_ns", "Q"),  # the sender's monotonic clock, comparable on one host only
    ("compute_ns", "Q"),  # time the spark computed, in a partial, or took, in a loaded or filled
    ("checksum", "Q"),  # xxh3_64
)
HEADER = struct.Struct("<" + "".join(code for _, code in LAYOUT))
HEADER_BYTES = HEADER.size
CHECKSUM = struct.Struct("<Q")
CHECKSUM_AT = HEADER_BYTES - CHECKSUM.size
_NO_FLAGS, _NO_RESERVED = 0, bytes(6)


class Kind(IntEnum):
    """What a frame asks or answers."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSE = 5
    LOAD = 6
    LOADED = 7
    COMMIT = 8
    COMMITTED = 9
    DISPATCH = 10
    PARTIAL = 11
    PING = 12
    PONG = 13
    ERROR = 14
    RESET = 15
    BYE = 16
    RETIRE = 17
    RETIRED = 18
    FILL = 19
    FILLED = 20


KINDS: tuple[Kind | None, ...] = (None, *Kind)
DATA_KINDS = frozenset((Kind.LOAD, Kind.DISPATCH, Kind.PARTIAL, Kind.RETIRE, Kind.FILL))
"""Kinds of any size up to the link's limit. All others are control frames."""

CONTROL_BYTES = 4096
"""Most bytes of a control frame, header included."""


class Header(NamedTuple):
    """The fields of a header that passed `read_header`."""

    kind: Kind
    epoch: int
    rows: int
    sequence: int
    layer: int
    payload_bytes: int
    sent_ns: int
    compute_ns: int
    checksum: int


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A received frame. `payload` stays as it is until the next data frame of the same link."""

    kind: Kind
    epoch: int
    sequence: int
    layer: int
    rows: int
    sent_ns: int
    compute_ns: int
    payload: memoryview


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What a spark answers a frame with, before a link turns it into a frame."""

    kind: Kind
    parts: Sequence[Buffer] = ()
    epoch: int = 0
    layer: int = 0
    rows: int = 0
    compute_ns: int = 0


def write_header(
    frame: memoryview, kind: Kind, epoch: int, sequence: int, layer: int, rows: int, compute_ns: int
) -> None:
    """Write header and checksum of `frame`, whose payload already lies behind the header.

    Raises FabricError when a field does not fit its place in the header.
    """
    try:
        HEADER.pack_into(
            frame,
            0,
            MAGIC,
            VERSION,
            kind,
            _NO_FLAGS,
            epoch,
            rows,
            sequence,
            layer,
            _NO_RESERVED,
            len(frame) - HEADER_BYTES,
            monotonic_ns(),
            compute_ns,
            0,
        )
    except struct.error as error:
        raise FabricError(
            f"a {kind.name} frame for layer {layer}, {rows} rows, epoch {epoch}, sequence "
            f"{sequence} cannot be written: {error}"
        ) from None
    CHECKSUM.pack_into(frame, CHECKSUM_AT, xxhash.xxh3_64_intdigest(frame))


def read_header(buffer: Buffer, peer: str, limit_bytes: int) -> Header:
    """Check the 64 bytes at the front of `buffer` and return their fields.

    `limit_bytes` is the largest data payload the link takes. Raises FabricError naming `peer` for
    anything that this version would not have written.
    """
    (
        magic, version, number, flags, epoch, rows, sequence, layer, reserved,
        payload_bytes, sent_ns, compute_ns, checksum,
    ) = HEADER.unpack_from(buffer)  # fmt: skip
    if magic != MAGIC:
        raise FabricError(f"{peer} sent {magic.hex()} where a frame begins with {MAGIC.hex()}")
    if version != VERSION:
        raise FabricError(
            f"{peer} speaks frame version {version}, this k3d speaks {VERSION}",
            hint="install the same k3pod on every node",
        )
    kind = KINDS[number] if number < len(KINDS) else None
    if kind is None:
        raise FabricError(f"{peer} sent a frame of unknown kind {number}")
    if flags != _NO_FLAGS or reserved != _NO_RESERVED:
        raise FabricError(f"{peer} sent a {kind.name} frame with reserved bits set")
    most = limit_bytes if kind in DATA_KINDS else CONTROL_BYTES - HEADER_BYTES
    if payload_bytes > most:
        raise FabricError(
            f"{peer} announced a {kind.name} frame of {payload_bytes} bytes, "
            f"the limit on this link is {most}"
        )
    return Header(kind, epoch, rows, sequence, layer, payload_bytes, sent_ns, compute_ns, checksum)


def open_frame(frame: memoryview, header: Header, peer: str) -> Frame:
    """Verify the checksum of `frame` (header and payload) and return it with its payload.

    The checksum field is zeroed in place to hash without a copy, so a frame opens once. Raises
    FabricError when the bytes are not those that were sent.
    """
    CHECKSUM.pack_into(frame, CHECKSUM_AT, 0)
    found = xxhash.xxh3_64_intdigest(frame)
    if found != header.checksum:
        raise FabricError(
            f"a {header.kind.name} frame of {header.payload_bytes} bytes from {peer} was damaged "
            f"on the way: checksum {found:016x}, announced {header.checksum:016x}"
        )
    return Frame(
        header.kind,
        header.epoch,
        header.sequence,
        header.layer,
        header.rows,
        header.sent_ns,
        header.compute_ns,
        frame[HEADER_BYTES:],
    )
