"""What a link does not believe: answers to something else, other secrets, damaged records."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from k3d.errors import BankError, ExitCode, FabricError, NodeLost, Refused
from k3d.fabric import Facts, Frame, Link, Record
from k3d.fabric.frames import Kind
from k3d.station.membership import LinkTimes, SparkLink
from tests.fabric.summing_spark import (
    HANG_LAYER,
    LAYER_SUM,
    OTHER_SECRET,
    QUICK,
    SECRET,
    hop,
    records,
    rows_of,
    spark_facts,
    spark_process,
    station_facts,
    thread_spark,
    until,
)
from tests.station.linking import at, link_to


def test_an_uncollected_answer_is_dropped_before_the_next_dispatch() -> None:
    with thread_spark() as spark, link_to(at("shm", lambda: spark.address)) as link:
        link.wait_ready(5.0)
        link.begin(3, 1, [rows_of(100)])
        assert hop(link, 200) == [200 + LAYER_SUM]
        link.begin(3, 1, [rows_of(300)])
        link.settle()
        assert link.snapshot().waiting_s is None
        assert hop(link, 400) == [400 + LAYER_SUM]
        link.settle()
        with pytest.raises(NodeLost, match="lost the dispatch"):
            link.finish()


class Meddler:
    """A link that changes the next frame it receives."""

    def __init__(self, link: Link, change: Callable[[Frame], Frame]) -> None:
        self._link = link
        self._change = change

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)

    def receive(self, timeout_s: float | None) -> Frame:
        frame = self._link.receive(timeout_s)
        return self._change(frame) if frame.kind is Kind.PARTIAL else frame


def altered(**changes: int) -> Callable[[Frame], Frame]:
    def change(frame: Frame) -> Frame:
        fields = {name: getattr(frame, name) for name in frame.__struct_fields__}
        for name, by in changes.items():
            fields[name] += by
        return Frame(**fields)

    return change


def damaged(frame: Frame) -> Frame:
    raise FabricError("a PARTIAL frame from spark-1 was damaged on the way")


@pytest.mark.parametrize(
    "change",
    [
        altered(epoch=-1),
        altered(sequence=1),
        altered(sequence=-1),
        altered(layer=1),
        altered(rows=1),
        damaged,
    ],
)
def test_an_answer_to_something_else_is_never_used(change: Callable[[Frame], Frame]) -> None:
    with thread_spark() as spark:
        honest = at("shm", lambda: spark.address)
        meddling = [change]

        def where(timeout_s: float) -> Link:
            link = honest(timeout_s)
            return Meddler(link, meddling.pop()) if meddling else link  # type: ignore[return-value]

        with link_to(where) as link:
            link.wait_ready(5.0)
            link.begin(3, 1, [rows_of(1)])
            with pytest.raises(NodeLost, match="spark-1"):
                link.finish()
            link.wait_ready(5.0)
            assert hop(link, 1) == [1 + LAYER_SUM]


@pytest.mark.parametrize(
    ("facts", "secret", "sentence"),
    [
        (station_facts(), OTHER_SECRET, "spark-1 does not prove this pod's secret"),
        (station_facts(version="9.9"), SECRET, "spark-1 runs k3d 0.1.0, station runs 9.9"),
        (station_facts(model_digest="dd" * 32), SECRET, "spark-1 was started for model a1a1"),
        (station_facts(slice_index=1), SECRET, "spark-1 was started for slice 0 of 4"),
    ],
)
def test_refused_with_the_sentence(facts: Facts, secret: bytes, sentence: str) -> None:
    own = spark_facts(model_digest="a1" * 32, slice_index=0, slice_count=4)
    with (
        thread_spark(facts=own) as spark,
        link_to(at("shm", lambda: spark.address), facts=facts, secret=secret) as link,
    ):
        with pytest.raises(Refused, match=sentence):
            link.wait_ready(5.0)
        assert link.snapshot().state == "refused"
        assert sentence in (link.snapshot().reason or "")
        with pytest.raises(Refused, match=sentence) as caught:
            link.begin(3, 1, [rows_of(1)])
        assert (caught.value.code, caught.value.retryable) == (ExitCode.REFUSED, False)
        link.settle()


def test_a_bank_that_cannot_be_read_refuses_the_link_until_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    tries: list[int] = []
    mended = threading.Event()

    def source() -> Iterator[Record]:
        tries.append(len(tries))
        yield from records(3)
        if not mended.is_set():
            raise BankError(
                "the record of layer 3 expert 3 does not match its hash", hint="rebuild"
            )
        yield from list(records())[3:]

    times = LinkTimes(retry_first_s=0.01, retry_most_s=0.01, refill_s=0.01)
    with thread_spark() as spark:
        where = at("shm", lambda: spark.address)
        link = SparkLink(station_facts(), where, SECRET, source, times=times)
        link.start()
        with pytest.raises(Refused, match="spark-1: the record of layer 3 expert 3") as caught:
            link.wait_ready(5.0)
        assert caught.value.hint == "rebuild"
        until(lambda: len(tries) > 3, "more tries")
        assert link.snapshot().state == "refused", "also while it is tried again"
        assert link.snapshot().reason == (
            "spark-1: the record of layer 3 expert 3 does not match its hash (rebuild)"
        )
        with pytest.raises(Refused, match="layer 3 expert 3"):
            link.begin(3, 1, [rows_of(1)])
        mended.set()
        until(lambda: link.ready, "ready")
        assert hop(link, 1) == [1 + LAYER_SUM]
        link.close()
    assert caplog.text.count("is refused") == 1, "told once, not at every try"


def test_a_link_refused_in_mid_hop_ends_the_hop_at_once() -> None:
    other = spark_facts(model_digest="dd" * 32)
    with thread_spark(facts=other) as stranger, spark_process() as victim:
        addresses = [victim.address]
        with link_to(at("shm", lambda: addresses[-1])) as link:
            link.wait_ready(10.0)
            link.begin(HANG_LAYER, 1, [rows_of(1)])
            addresses.append(stranger.address)
            victim.kill()
            until(lambda: link.snapshot().state == "refused", "refused")
            with pytest.raises(Refused, match="spark-1 was started for model dddd"):
                link.finish()
            link.settle()


def test_a_restarted_station_skips_the_refill_and_another_placement_does_not() -> None:
    fills: list[int] = []
    with thread_spark() as spark:
        where = at("shm", lambda: spark.address)
        for placement, filled in (("p1", 1), ("p1", 1), ("p2", 2)):
            facts = station_facts(placement_digest=placement)
            with link_to(where, facts=facts, fills=fills) as link:
                link.wait_ready(5.0)
                assert hop(link, 1) == [1 + LAYER_SUM]
                assert link.snapshot().loaded == 6
                assert len(fills) == filled


def test_damaged_records_are_never_served(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tries: list[int] = []

    def source() -> Sequence[Record]:
        tries.append(len(tries))
        return [record._replace(digest=bytes(32)) for record in records()]

    with thread_spark() as spark:
        link = SparkLink(
            station_facts(), at("shm", lambda: spark.address), SECRET, source, times=QUICK
        )
        link.start()
        until(lambda: len(tries) > 2, "more tries")
        link.close()
    assert "does not match its digest" in caplog.text
    assert "is ready" not in caplog.text
