"""The handshake, its two ends run against each other and against impostors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from k3d.errors import FabricError, HandshakeRefused
from k3d.fabric import Facts, Frame, Holding, InprocLink, Kind, Reply
from k3d.fabric.control import decode, encode, refusal_reply
from k3d.fabric.handshake import Challenge, Greeting, Hello, Proof, call, check_fit
from tests.fabric.summing_spark import MODEL, OTHER_SECRET, SECRET, spark_facts, station_facts

Answer = Callable[[Frame], Reply]


class SparkEnd:
    """The spark's steps in order; it keeps what it saw and how it ended."""

    def __init__(self, facts: Facts, secret: bytes = SECRET) -> None:
        self.facts = facts
        self.greeting = Greeting(secret, facts.node, "caller")
        self.seen: list[tuple[Kind, bytes]] = []
        self.refused: HandshakeRefused | None = None
        self.station: Facts | None = None

    def answer(self, frame: Frame) -> Reply:
        self.seen.append((frame.kind, bytes(frame.payload)))
        try:
            if frame.kind is Kind.HELLO:
                return self.greeting.challenge(frame)
            self.station = self.greeting.prove(frame)
            check_fit(self.station, self.facts)
        except HandshakeRefused as error:
            self.refused = error
            return refusal_reply(error)
        return self.greeting.welcome(self.facts)


def shake(answer: Answer, facts: Facts, secret: bytes = SECRET) -> Facts:
    link = InprocLink(answer, "spark-1", capacity_bytes=facts.capacity_bytes)
    return call(link, secret, facts, 1.0)


def frame_of(kind: Kind, body: msgspec.Struct) -> Frame:
    return Frame(kind, 0, 0, 0, 0, 0, 0, memoryview(encode(body)))


def test_both_ends_learn_the_facts_of_the_other() -> None:
    spark = SparkEnd(spark_facts(slots=8))
    assert shake(spark.answer, station_facts()) == spark.facts
    assert spark.station == station_facts()


def test_the_smaller_capacity_is_agreed() -> None:
    spark = SparkEnd(spark_facts(capacity_bytes=5000))
    link = InprocLink(spark.answer, "spark-1", capacity_bytes=1 << 20)
    call(link, SECRET, station_facts(), 1.0)
    with pytest.raises(FabricError, match="limit of 5000 bytes"):
        link.send(Kind.LOAD, parts=(bytes(5001),))


def test_the_secret_is_never_sent() -> None:
    spark = SparkEnd(spark_facts())
    shake(spark.answer, station_facts())
    assert [kind for kind, _ in spark.seen] == [Kind.HELLO, Kind.PROOF]
    assert all(SECRET not in payload for _, payload in spark.seen)


def test_facts_wait_for_the_spark_to_prove_itself() -> None:
    spark = SparkEnd(spark_facts(), OTHER_SECRET)
    link = InprocLink(spark.answer, "spark-1", capacity_bytes=1 << 20)
    with pytest.raises(HandshakeRefused, match="spark-1 does not prove this pod's secret"):
        call(link, SECRET, station_facts(), 1.0)
    link.receive(1.0)  # hands the spark what the Station sent last
    assert [kind for kind, _ in spark.seen] == [Kind.HELLO, Kind.REFUSE]
    assert MODEL.encode() not in spark.seen[1][1]
    assert "another pod secret" in str(spark.refused)


def test_a_station_that_does_not_know_the_secret_learns_nothing() -> None:
    spark = SparkEnd(spark_facts(model_digest=MODEL))
    spark.answer(frame_of(Kind.HELLO, Hello(bytes(32))))
    body = encode(station_facts())
    reply = spark.answer(frame_of(Kind.PROOF, Proof(body, bytes(32))))
    assert reply.kind is Kind.REFUSE
    assert "caller does not prove the pod secret of spark-1" in str(spark.refused)
    assert MODEL.encode() not in b"".join(map(bytes, reply.parts))


def test_a_recorded_proof_is_of_no_use_again() -> None:
    first = SparkEnd(spark_facts())
    shake(first.answer, station_facts())
    again = SparkEnd(spark_facts())
    for kind, payload in first.seen:
        reply = again.answer(Frame(kind, 0, 0, 0, 0, 0, 0, memoryview(payload)))
    assert reply.kind is Kind.REFUSE


def test_recorded_answers_of_a_spark_are_of_no_use_again() -> None:
    spark, recorded = SparkEnd(spark_facts()), []

    def record(frame: Frame) -> Reply:
        recorded.append(spark.answer(frame))
        return recorded[-1]

    shake(record, station_facts())
    replay = iter(recorded)
    with pytest.raises(HandshakeRefused, match="does not prove"):
        shake(lambda _: next(replay), station_facts())


def test_reflecting_the_station_to_itself_fails() -> None:
    def mirror(frame: Frame) -> Reply:
        nonce = decode(frame, Hello, "mirror").nonce
        return Reply(Kind.CHALLENGE, (encode(Challenge(nonce, bytes(32))),))

    with pytest.raises(HandshakeRefused, match="does not prove"):
        shake(mirror, station_facts())


def test_reflecting_the_sparks_proof_fails() -> None:
    spark = SparkEnd(spark_facts())
    challenge = decode(
        Frame(
            Kind.CHALLENGE, 0, 0, 0, 0, 0, 0,
            memoryview(b"".join(map(bytes, spark.answer(
                frame_of(Kind.HELLO, Hello(bytes(32)))).parts))),
        ),
        Challenge,
        "spark",
    )  # fmt: skip
    reply = spark.answer(frame_of(Kind.PROOF, Proof(b"", challenge.proof)))
    assert reply.kind is Kind.REFUSE


def test_facts_changed_on_the_way_are_refused() -> None:
    spark = SparkEnd(spark_facts())

    def meddle(frame: Frame) -> Reply:
        if frame.kind is Kind.PROOF:
            proof = decode(frame, Proof, "x")
            body = proof.facts.replace(b"station", b"stati0n")
            frame = frame_of(Kind.PROOF, Proof(body, proof.proof))
        return spark.answer(frame)

    with pytest.raises(HandshakeRefused, match="spark-1 refused this Station"):
        shake(meddle, station_facts())


HELD = Holding(MODEL, 0, 4, 5, "p1", 6)


@pytest.mark.parametrize(
    ("station", "spark", "sentence"),
    [
        ({}, {"version": "0.2.0"}, "spark-1 runs k3d 0.2.0, station runs 0.1.0"),
        ({}, {"node": "spark-2"}, "spark-2 answered where station called spark-1"),
        (
            {},
            {"model_digest": "b2" * 32},
            "spark-1 was started for model b2b2b2b2b2b2b2b2, station serves a1a1a1a1a1a1a1a1",
        ),
        (
            {},
            {"slice_index": 2, "slice_count": 4},
            "spark-1 was started for slice 2 of 4, station gives it slice 0 of 4",
        ),
        (
            {"model_digest": "b2" * 32},
            {"holding": HELD},
            "spark-1 holds slices of model a1a1a1a1a1a1a1a1, station serves b2b2b2b2b2b2b2b2",
        ),
        (
            {"slice_count": 8},
            {"holding": HELD},
            "spark-1 holds slice 0 of 4, station gives it slice 0 of 8",
        ),
        (
            {"epoch": 4},
            {"holding": HELD},
            "spark-1 holds epoch 5, station is still at epoch 4",
        ),
        ({}, {"role": "station"}, "spark-1 is a station"),
    ],
)
def test_what_does_not_fit_is_one_sentence_on_both_ends(
    station: dict[str, Any], spark: dict[str, Any], sentence: str
) -> None:
    end = SparkEnd(spark_facts(**spark))
    with pytest.raises(HandshakeRefused, match=sentence) as caught:
        shake(end.answer, station_facts(**station))
    assert end.refused is not None
    assert sentence in end.refused.message
    assert end.refused.hint == caught.value.hint


def test_the_station_checks_the_facts_too() -> None:
    """A spark that would take anybody is refused by the Station."""
    end = SparkEnd(spark_facts())

    def careless(frame: Frame) -> Reply:
        reply = end.answer(frame)
        if reply.kind is Kind.WELCOME:
            return end.greeting.welcome(spark_facts(version="9"))
        return reply

    with pytest.raises(HandshakeRefused, match="spark-1 runs k3d 9"):
        shake(careless, station_facts())


@pytest.mark.parametrize(
    "reply",
    [
        Reply(Kind.PONG),
        Reply(Kind.CHALLENGE, (b"\xc1garbage",)),
        Reply(Kind.CHALLENGE, (encode(Challenge(b"short", b"")),)),
        Reply(Kind.CHALLENGE),
    ],
)
def test_nonsense_instead_of_a_challenge_is_an_error(reply: Reply) -> None:
    with pytest.raises(FabricError, match="spark-1"):
        shake(lambda _: reply, station_facts())


@pytest.mark.parametrize("payload", [b"", b"\xc1", encode(Hello(b"short")), b"\xff" * 64])
def test_nonsense_instead_of_a_hello_is_an_error(payload: bytes) -> None:
    frame = Frame(Kind.HELLO, 0, 0, 0, 0, 0, 0, memoryview(payload))
    with pytest.raises(FabricError, match="caller"):
        Greeting(SECRET, "spark-1", "caller").challenge(frame)
