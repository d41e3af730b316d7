"""Bodies of control frames: msgpack of these structs. None of them is on the token path."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from k3d.errors import ExitCode, FabricError, K3Error
from k3d.fabric.frames import Frame, Kind, Reply
from k3d.store.frame import Sensors

MOST_SENTENCE_CHARACTERS = 900
"""Longer sentences are cut, so that an error always fits a control frame."""

Body = TypeVar("Body", bound=msgspec.Struct)


class Commit(msgspec.Struct, frozen=True):
    """COMMIT: what the spark now holds, completely, for the epoch in the frame's header."""

    placement_digest: str
    records: int


class Counters(msgspec.Struct, frozen=True):
    """PONG: what a spark has done and how it is. `rss_bytes` is None where it cannot be read, and
    `sensors` until they were read once."""

    pid: int
    rss_bytes: int | None
    loaded: int
    served_dispatches: int
    served_rows: int
    compute_ns: int
    sensors: Sensors | None = None


class Failure(msgspec.Struct, frozen=True):
    """ERROR: why a request was not served. `code` is an ExitCode."""

    code: int
    message: str
    hint: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """REFUSE: why a handshake ends, one sentence."""

    sentence: str
    hint: str | None = None


def encode(body: msgspec.Struct) -> bytes:
    """The payload that carries `body`."""
    return msgspec.msgpack.encode(body)


def decode(frame: Frame, body: type[Body], peer: str) -> Body:
    """The body of `frame`. Raises FabricError when the payload is not one."""
    return decode_bytes(frame.payload, body, peer, frame.kind)


def decode_bytes(payload: bytes | memoryview, body: type[Body], peer: str, kind: Kind) -> Body:
    """As `decode`, for bytes that were taken out of a frame."""
    try:
        return msgspec.msgpack.decode(payload, type=body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FabricError(f"{peer} sent a {kind.name} frame that cannot be read: {error}") from None


def failure_reply(error: K3Error) -> Reply:
    """The ERROR frame that carries `error`."""
    failure = Failure(int(error.code), _cut(error.message), error.hint and _cut(error.hint))
    return Reply(Kind.ERROR, (encode(failure),))


def refusal_reply(error: K3Error) -> Reply:
    """The REFUSE frame that carries `error`."""
    refusal = Refusal(_cut(error.message), error.hint and _cut(error.hint))
    return Reply(Kind.REFUSE, (encode(refusal),))


def failure_sentence(frame: Frame, peer: str) -> str:
    """What an ERROR frame says, as a clause that follows the name of the spark."""
    failure = decode(frame, Failure, peer)
    names = {int(code): code.name for code in ExitCode}
    return f"{failure.message} ({names.get(failure.code, failure.code)})"


def _cut(sentence: str) -> str:
    if len(sentence) <= MOST_SENTENCE_CHARACTERS:
        return sentence
    return sentence[: MOST_SENTENCE_CHARACTERS - 3] + "..."
