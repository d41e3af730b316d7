"""Messages of a transfer, and the proof of the pod secret that comes before any of them.

    sender    Hello      nonce
    receiver  Challenge  its own nonce, proof over both
    sender    Claim      an Offer, proof over both nonces and the offer
    receiver  Claim      an Answer, proof over both nonces and the answer; or Refused
    sender    the bank's manifest, deflated up to its hashes, unless the receiver has it
    receiver  Checking now and then, Wanted: which records it lacks
    sender    those records, from the file to the socket
    receiver  Stored, or Refused

A message is a u32 little-endian length and msgpack. Manifest and records go as they are, with no
frame of their own: the proven offer names the hash of the manifest, and the manifest names the hash
of every record, so that no byte is taken that the secret's holder did not mean. Proofs are made as
in fabric/handshake.py, in a domain of their own.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from contextlib import suppress
from typing import TypeVar

import msgspec

from k3d.errors import ExitCode, FabricError, HandshakeRefused, K3Error, TimedOut

DOMAIN = b"k3-stage-1"
NONCE_BYTES = 32
STALL_S = 30.0
"""How long the other end may move no byte."""
STRANGER_BYTES = 4096
MOST_BYTES = 16 * 2**20
"""Of a message, before and after the other end proved the secret."""
SECRET_HINT = "copy the same pod.secret to every node's K3 home"
_LENGTH = struct.Struct("<I")
_TIMEVAL = struct.Struct("@ll")


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True, tag="challenge"):
    nonce: bytes
    proof: bytes


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """An encoded Offer or Answer, and the proof that covers exactly these bytes."""

    body: bytes
    proof: bytes


class Offer(msgspec.Struct, frozen=True):
    """A bank file for a node. The manifest is that without the zeros at its end; `deflated_bytes`
    is what travels of it. `look_only` asks what the node lacks and sends nothing."""

    version: str
    node: str
    name: str
    size_bytes: int
    manifest_bytes: int
    deflated_bytes: int
    manifest_digest: bytes
    look_only: bool = False


class Answer(msgspec.Struct, frozen=True):
    node: str
    has_manifest: bool


class Checking(msgspec.Struct, frozen=True, tag="checking"):
    """Bytes of what the receiver has already that were hashed again."""

    done_bytes: int
    total_bytes: int


class Wanted(msgspec.Struct, frozen=True, tag="wanted"):
    """First index and number of each run of records that the receiver lacks."""

    runs: list[tuple[int, int]]
    kept: int
    discarded: str | None = None


class Stored(msgspec.Struct, frozen=True, tag="stored"):
    """Everything is on the receiver's disk, under its name."""

    records: int
    repaired: int
    hash_s: float = 0.0
    """Time that hashing took there."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    code: int
    message: str
    hint: str | None = None


Message = Hello | Challenge | Claim | Checking | Wanted | Stored | Refused
_Any = TypeVar("_Any", bound=msgspec.Struct)


class Channel:
    """One end of a transfer. Counts every byte that it gave to the socket or took from it."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self.sock = sock
        self.peer = peer
        self.sent_bytes = 0
        self.received_bytes = 0
        self.most_bytes = STRANGER_BYTES
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.allow(STALL_S)

    def allow(self, stall_s: float) -> None:
        """How long a send or a receive may move no byte. The socket itself stays blocking, so that
        the kernel moves as much as it can in one call."""
        self.sock.settimeout(None)
        span = _TIMEVAL.pack(int(stall_s), int(stall_s % 1 * 1e6))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self.sock.setsockopt(socket.SOL_SOCKET, option, span)

    def expect(self, size_bytes: int) -> None:
        """Let the kernel hold so much of what comes. Linux makes the room for a mark that is this
        high, whatever it allows a buffer that is asked for, and keeps it when the mark is gone."""
        for mark in (size_bytes, 1):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)

    def send(self, message: Message) -> None:
        body = msgspec.msgpack.encode(message)
        self.send_bytes(_LENGTH.pack(len(body)) + body)

    def send_bytes(self, whole: bytes) -> None:
        """Bytes as they are."""
        data = memoryview(whole)
        while data:
            try:
                count = self.sock.send(data, socket.MSG_NOSIGNAL)
            except OSError as error:
                raise self.broken(error) from None
            self.sent_bytes += count
            data = data[count:]

    def receive(self, kind: type[_Any]) -> _Any:
        """The next message, which must be of this kind. A Refused is raised as the error it is."""
        message = self.receive_any()
        if not isinstance(message, kind):
            raise FabricError(
                f"{self.peer} sent {type(message).__name__} where {kind.__name__} was due"
            )
        return message

    def receive_any(self) -> Message:
        """The next message. A Refused is raised as the error it is."""
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        if not 0 < length <= self.most_bytes:
            raise FabricError(f"{self.peer} announced a message of {length} bytes")
        try:
            message = msgspec.msgpack.decode(self._take(length), type=Message)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise FabricError(f"{self.peer} sent what is no message: {error}") from None
        if isinstance(message, Refused):
            raise refusal_error(message, self.peer)
        return message

    def receive_into(self, view: memoryview) -> None:
        """Fill `view` with what comes."""
        while view:
            try:
                count = self.sock.recv_into(view, len(view), socket.MSG_WAITALL)
            except OSError as error:
                raise self.broken(error) from None
            if count == 0:
                raise self.broken()
            self.received_bytes += count
            view = view[count:]

    def broken(self, error: OSError | None = None) -> FabricError:
        if isinstance(error, BlockingIOError):
            return FabricError(f"{self.peer} moved no byte for {STALL_S:.0f} s")
        how = f": {error.strerror}" if error is not None and error.strerror else ""
        return FabricError(
            f"{self.peer} ended the transfer{how}", hint="run it again: it goes on from there"
        )

    def refuse(self, error: K3Error) -> None:
        """Tell the other end why, if it still listens, and let it read that."""
        with suppress(FabricError, OSError):
            self.send(Refused(int(error.code), error.message[:900], error.hint))
            self.sock.shutdown(socket.SHUT_WR)
            self.allow(1.0)
            while self.sock.recv(2**16):
                pass

    def close(self) -> None:
        self.sock.close()

    def _take(self, count: int) -> bytearray:
        data = bytearray(count)
        self.receive_into(memoryview(data))
        return data


def refusal_error(refusal: Refused, peer: str) -> K3Error:
    """The error that the other end reports, with its exit code."""
    error = K3Error(f"{peer}: {refusal.message}", hint=refusal.hint)
    known = refusal.code in set(ExitCode) and refusal.code != ExitCode.OK
    error.code = ExitCode(refusal.code) if known else ExitCode.FAILED
    return error


def offer(channel: Channel, secret: bytes, what: Offer) -> Answer:
    """The sender's side of the proof. Raises HandshakeRefused unless both ends hold the secret."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    channel.send(Hello(nonce))
    challenge = channel.receive(Challenge)
    nonces = nonce + challenge.nonce
    sound = len(challenge.nonce) == NONCE_BYTES and challenge.nonce != nonce
    if not sound or not _proven(challenge.proof, secret, b"receiver knows", nonces):
        raise HandshakeRefused(f"{channel.peer} does not prove this pod's secret", hint=SECRET_HINT)
    body = msgspec.msgpack.encode(what)
    channel.send(Claim(body, _prove(secret, b"sender", nonces, body)))
    claim = channel.receive(Claim)
    if not _proven(claim.proof, secret, b"receiver", nonces, claim.body):
        raise HandshakeRefused(f"{channel.peer} does not prove what it says", hint=SECRET_HINT)
    channel.most_bytes = MOST_BYTES
    return _decoded(claim.body, Answer, channel.peer)


class Welcome:
    """The receiver's side of the proof: `hear` the offer, then `answer` it."""

    def __init__(self, channel: Channel, secret: bytes) -> None:
        self._channel = channel
        self._secret = secret
        self._nonces = b""

    def hear(self) -> Offer:
        """Raises HandshakeRefused unless the sender proves the secret."""
        channel = self._channel
        hello = channel.receive(Hello)
        if len(hello.nonce) != NONCE_BYTES:
            raise FabricError(f"{channel.peer} sent a nonce of {len(hello.nonce)} bytes")
        own = secrets.token_bytes(NONCE_BYTES)
        self._nonces = hello.nonce + own
        channel.send(Challenge(own, _prove(self._secret, b"receiver knows", self._nonces)))
        claim = channel.receive(Claim)
        if not _proven(claim.proof, self._secret, b"sender", self._nonces, claim.body):
            raise HandshakeRefused(
                f"{channel.peer} does not prove the pod secret", hint=SECRET_HINT
            )
        channel.most_bytes = MOST_BYTES
        return _decoded(claim.body, Offer, channel.peer)

    def answer(self, what: Answer) -> None:
        body = msgspec.msgpack.encode(what)
        self._channel.send(Claim(body, _prove(self._secret, b"receiver", self._nonces, body)))


def _decoded(body: bytes, kind: type[_Any], peer: str) -> _Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FabricError(f"{peer} sent no {kind.__name__}: {error}") from None


def connect(address: str, node: str, timeout_s: float) -> Channel:
    """A channel to the receiver of a node. Raises FabricError when nothing answers."""
    host, _, port = address.rpartition(":")
    try:
        sock = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
    except TimeoutError:
        raise TimedOut(f"{node} did not answer on {address} in {timeout_s:.0f} s") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FabricError(
            f"nothing receives banks for {node} on {address}: {why}",
            hint=f"start it there: k3d bank receive --name {node}",
        ) from None
    return Channel(sock, node)


def _prove(secret: bytes, who: bytes, nonces: bytes, body: bytes = b"") -> bytes:
    return hmac.digest(secret, b"\0".join((DOMAIN, who, nonces + body)), "sha256")


def _proven(proof: bytes, secret: bytes, who: bytes, nonces: bytes, body: bytes = b"") -> bool:
    return hmac.compare_digest(proof, _prove(secret, who, nonces, body))
