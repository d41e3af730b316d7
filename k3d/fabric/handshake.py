"""The handshake: both ends prove the pod secret before either says anything about itself.

    Station  HELLO      nonce
    spark    CHALLENGE  its own nonce, proof over both
    Station  PROOF      facts, proof over both nonces and the facts
    spark    WELCOME    facts, proof over both nonces and the facts; or REFUSE, a sentence

A proof is HMAC-SHA256 with the secret as key. It names who proves and when, so that none can be
sent back or used again; nonces are fresh and 32 bytes. Frames after the handshake are checksummed,
not authenticated: the network between the nodes is the owner's own.
"""

from __future__ import annotations

import hmac
import secrets
from time import monotonic

import msgspec

from k3d.errors import FabricError, HandshakeRefused, TimedOut
from k3d.fabric.control import Refusal, decode, decode_bytes, encode, refusal_reply
from k3d.fabric.facts import Facts, disagreement
from k3d.fabric.frames import Frame, Kind, Reply
from k3d.fabric.link import Link

DOMAIN = b"k3-fabric-1"
NONCE_BYTES = 32
SECRET_HINT = "copy the same pod.secret to every node's K3 home"


class Hello(msgspec.Struct, frozen=True):
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True):
    nonce: bytes
    proof: bytes


class Proof(msgspec.Struct, frozen=True):
    """PROOF and WELCOME: encoded Facts and the proof that covers exactly these bytes."""

    facts: bytes
    proof: bytes


class Greeting:
    """The spark's side of one handshake: `challenge`, then `prove`, then `welcome`."""

    def __init__(self, secret: bytes, node: str, peer: str) -> None:
        self._secret = secret
        self._node = node
        self._peer = peer
        self._nonces = b""

    def challenge(self, frame: Frame) -> Reply:
        """Answer HELLO. Raises FabricError when `frame` is none."""
        _expect(frame, Kind.HELLO, self._peer)
        hello = decode(frame, Hello, self._peer)
        _check_nonce(hello.nonce, self._peer)
        own = secrets.token_bytes(NONCE_BYTES)
        self._nonces = hello.nonce + own
        proof = _prove(self._secret, b"spark knows", self._nonces)
        return Reply(Kind.CHALLENGE, (encode(Challenge(own, proof)),))

    def prove(self, frame: Frame) -> Facts:
        """The Station's facts, out of its PROOF.

        Raises HandshakeRefused when it proves another secret or refuses this spark.
        """
        if frame.kind is Kind.REFUSE:
            raise refused(frame, self._peer, f"the {self._peer} refused {self._node}")
        _expect(frame, Kind.PROOF, self._peer)
        claim = decode(frame, Proof, self._peer)
        if not _proven(claim.proof, self._secret, b"station", self._nonces, claim.facts):
            raise HandshakeRefused(
                f"the {self._peer} does not prove the pod secret of {self._node}", hint=SECRET_HINT
            )
        return decode_bytes(claim.facts, Facts, self._peer, frame.kind)

    def welcome(self, facts: Facts) -> Reply:
        """The last frame: this spark's facts."""
        body = encode(facts)
        return Reply(
            Kind.WELCOME, (encode(Proof(body, _prove(self._secret, b"spark", self._nonces, body))),)
        )


def check_fit(station: Facts, spark: Facts) -> None:
    """Raise HandshakeRefused, with the sentence that both ends show, unless the two fit."""
    found = disagreement(station, spark)
    if found is not None:
        raise HandshakeRefused(found.sentence, hint=found.hint)


def agreed_limit(station: Facts, spark: Facts) -> int:
    """Largest data payload in bytes that both ends take."""
    return min(station.capacity_bytes, spark.capacity_bytes)


def call(link: Link, secret: bytes, facts: Facts, timeout_s: float) -> Facts:
    """The Station's side: prove, be proven to, agree, and open `link` for data frames.

    Returns the spark's facts. Raises HandshakeRefused when the two do not belong together,
    FabricError when the link breaks and TimedOut when the spark does not answer in time.
    """
    name = facts.calling or link.peer
    deadline = monotonic() + timeout_s
    nonce = secrets.token_bytes(NONCE_BYTES)
    link.send(Kind.HELLO, parts=(encode(Hello(nonce)),))
    challenge = decode(_answer(link, Kind.CHALLENGE, name, deadline), Challenge, name)
    _check_nonce(challenge.nonce, name)
    nonces = nonce + challenge.nonce
    if challenge.nonce == nonce or not _proven(
        challenge.proof, secret, b"spark knows", nonces, b""
    ):
        refusal = HandshakeRefused(f"{name} does not prove this pod's secret", hint=SECRET_HINT)
        _tell(link, HandshakeRefused("its caller holds another pod secret", hint=SECRET_HINT))
        raise refusal
    body = encode(facts)
    link.send(Kind.PROOF, parts=(encode(Proof(body, _prove(secret, b"station", nonces, body))),))
    welcome = decode(_answer(link, Kind.WELCOME, name, deadline), Proof, name)
    if not _proven(welcome.proof, secret, b"spark", nonces, welcome.facts):
        raise HandshakeRefused(f"{name} does not prove what it says", hint=SECRET_HINT)
    spark = decode_bytes(welcome.facts, Facts, name, Kind.WELCOME)
    try:
        check_fit(facts, spark)
    except HandshakeRefused as refusal:
        _tell(link, refusal)
        raise
    link.widen(agreed_limit(facts, spark))
    return spark


def _answer(link: Link, kind: Kind, name: str, deadline: float) -> Frame:
    try:
        frame = link.receive(max(0.0, deadline - monotonic()))
    except TimedOut:
        raise TimedOut(f"{name} did not finish the handshake in time: no {kind.name}") from None
    if frame.kind is Kind.REFUSE:
        raise refused(frame, name, f"{name} refused this Station")
    _expect(frame, kind, name)
    return frame


def _tell(link: Link, refusal: HandshakeRefused) -> None:
    """Let the spark know why, if it still listens."""
    reply = refusal_reply(refusal)
    try:
        link.send(reply.kind, parts=reply.parts)
    except FabricError:
        # It is gone already; the refusal is raised on this end either way.
        return


def refused(frame: Frame, peer: str, what: str) -> HandshakeRefused:
    """The error that a REFUSE frame stands for: `what`, and the sentence it carries."""
    refusal = decode(frame, Refusal, peer)
    return HandshakeRefused(f"{what}: {refusal.sentence}", hint=refusal.hint)


def _expect(frame: Frame, kind: Kind, peer: str) -> None:
    if frame.kind is not kind:
        raise FabricError(f"{peer} sent {frame.kind.name} where the handshake needs {kind.name}")


def _check_nonce(nonce: bytes, peer: str) -> None:
    if len(nonce) != NONCE_BYTES:
        raise FabricError(f"{peer} sent a nonce of {len(nonce)} bytes, not {NONCE_BYTES}")


def _prove(secret: bytes, who: bytes, nonces: bytes, facts: bytes = b"") -> bytes:
    return hmac.digest(secret, b"\0".join((DOMAIN, who, nonces + facts)), "sha256")


def _proven(proof: bytes, secret: bytes, who: bytes, nonces: bytes, facts: bytes) -> bool:
    return hmac.compare_digest(proof, _prove(secret, who, nonces, facts))
