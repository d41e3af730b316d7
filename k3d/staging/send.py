"""Sending a bank: from its file to the socket, with no copy in this process."""

from __future__ import annotations

import os
import select
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

import msgspec
from blake3 import blake3

from k3d import __version__
from k3d.errors import BankError, FabricError
from k3d.experts.bank_file import Bank
from k3d.experts.pages import drop_pages
from k3d.staging.pace import Pace
from k3d.staging.wire import Channel, Checking, Offer, Refused, Stored, Wanted, connect, offer

_Any = TypeVar("_Any", bound=msgspec.Struct)
CONNECT_S = 10.0
BEHIND_BYTES = 16 * 2**20
"""Sent pages are let go this far behind: the network may still need the ones before."""


@dataclass(frozen=True)
class Sent:
    """One transfer. `wire_bytes` counts both directions, `payload_bytes` manifest and records.

    `pour_s` is the time in which payload left, without the receiver's looking at what it has;
    `send_s` goes on until everything was on its disk.
    """

    records: int
    kept: int
    repaired: int
    payload_bytes: int
    wire_bytes: int
    pour_s: float
    send_s: float
    discarded: str | None = None
    lacking: int = 0
    """Records that the receiver lacked."""
    hash_s: float = 0.0
    """Time that hashing took there."""


def send_bank(
    bank: Bank,
    node: str,
    address: str,
    secret: bytes,
    pace: Pace,
    moved: Callable[[int], None],
    *,
    look_only: bool = False,
    checking: Callable[[int, int], None] | None = None,
) -> Sent:
    """Give a node the records that it lacks. `moved` hears of payload bytes as they leave.

    Raises what the receiver reports, FabricError for a broken connection, BankError when the file
    here is damaged.
    """
    manifest, layout = bank.manifest, bank.manifest.layout
    packed = manifest.packed
    head = layout.table_start  # hashes do not shrink; what comes before them does
    deflated = zlib.compress(packed[:head], 6) + packed[head:]
    what = Offer(
        version=__version__,
        node=node,
        name=bank.path.name,
        size_bytes=layout.size_bytes,
        manifest_bytes=len(packed),
        deflated_bytes=len(deflated),
        manifest_digest=blake3(packed).digest(),
        look_only=look_only,
    )
    channel = connect(address, node, CONNECT_S)
    try:
        answer = offer(channel, secret, what)
        pour = _Pour(channel, bank, pace, moved)
        began = monotonic()
        if not answer.has_manifest:
            pour.push(deflated)
        wanted = _awaited(channel, Wanted, checking)
        lacking = sum(count for _, count in wanted.runs)
        if look_only:
            return _sent(channel, pour, wanted, began, Stored(layout.count - lacking, 0))
        for first, count in wanted.runs:
            if not 0 <= first < first + count <= layout.count:
                raise FabricError(f"{node} asks for records that bank {bank.path.name} has not")
            pour.run(layout.offset(first), count * layout.header.record_bytes)
        stored = _awaited(channel, Stored)
        return _sent(channel, pour, wanted, began, stored)
    finally:
        channel.close()


def _awaited(
    channel: Channel, kind: type[_Any], checking: Callable[[int, int], None] | None = None
) -> _Any:
    """The next message of a kind, after the Checkings that may come before it."""
    while True:
        message = channel.receive_any()
        if isinstance(message, kind):
            return message
        if not isinstance(message, Checking):
            raise FabricError(f"{channel.peer} sent {type(message).__name__} out of turn")
        if checking is not None:
            checking(message.done_bytes, message.total_bytes)


def _sent(channel: Channel, pour: _Pour, wanted: Wanted, began: float, stored: Stored) -> Sent:
    return Sent(
        records=stored.records,
        kept=wanted.kept,
        repaired=stored.repaired,
        payload_bytes=pour.done_bytes,
        wire_bytes=channel.sent_bytes + channel.received_bytes,
        pour_s=pour.time_s,
        send_s=monotonic() - began,
        discarded=wanted.discarded,
        lacking=sum(count for _, count in wanted.runs),
        hash_s=stored.hash_s,
    )


class _Pour:
    """Moves parts of a bank's file into a socket."""

    def __init__(
        self, channel: Channel, bank: Bank, pace: Pace, moved: Callable[[int], None]
    ) -> None:
        self._channel = channel
        self._bank = bank
        self._pace = pace
        self._moved = moved
        self._readable = select.poll()
        self._readable.register(channel.sock, select.POLLIN)
        self.done_bytes = 0
        self.time_s = 0.0

    def push(self, data: bytes) -> None:
        """Send bytes that are in no file."""
        began = monotonic()
        self._pace.take(len(data))
        self._channel.send_bytes(data)
        self.done_bytes += len(data)
        self._moved(len(data))
        self.time_s += monotonic() - began

    def run(self, offset: int, size_bytes: int) -> None:
        """Send a part of the file. Raises what the receiver objects meanwhile."""
        began = monotonic()
        channel, source = self._channel, self._bank.descriptor
        target, begin, end = channel.sock.fileno(), offset, offset + size_bytes
        while offset < end:
            if self._readable.poll(0):
                self._heed()
            step = min(self._pace.chunk_bytes, end - offset)
            self._pace.take(step)
            try:
                count = os.sendfile(target, source, offset, step)
            except OSError as error:
                self._heed()
                raise channel.broken(error) from None
            if count == 0:
                raise BankError(f"bank {self._bank.path.name} was cut short while it was sent")
            offset += count
            channel.sent_bytes += count
            self.done_bytes += count
            self._moved(count)
            if offset - begin > 2 * BEHIND_BYTES:
                drop_pages(source, begin, BEHIND_BYTES)
                begin += BEHIND_BYTES
        self.time_s += monotonic() - began

    def _heed(self) -> None:
        """The receiver speaks out of turn only to refuse, or because it is gone."""
        self._channel.receive(Refused)
