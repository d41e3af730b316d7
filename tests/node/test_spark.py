"""The spark's loop: who is served, what a frame does, and what survives."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from k3d.errors import ConfigError, FabricError, HandshakeRefused
from k3d.fabric import Facts, Frame, Kind, Link, connect
from k3d.fabric.control import Commit, Counters, Failure, decode, encode
from k3d.fabric.handshake import call
from k3d.fabric.link import Caller
from k3d.fabric.records import batches
from k3d.fabric.request import ask
from k3d.node import door as door_module
from k3d.node import spark as spark_module
from k3d.node.spark import SparkServer
from tests.fabric.summing_spark import (
    CAPACITY_BYTES,
    FAIL_LAYER,
    LAYER_SUM,
    OTHER_SECRET,
    SECRET,
    Running,
    SummingWorker,
    records,
    rows_of,
    spark_facts,
    station_facts,
    thread_spark,
    until,
    values_of,
)

TRANSPORTS = ["shm", "tcp"]


@contextmanager
def station_link(
    spark: Running, facts: Facts | None = None, secret: bytes = SECRET
) -> Iterator[tuple[Link, Facts]]:
    """A Station's link to `spark`, past its handshake, and the facts the spark gave."""
    link = connect(spark.transport, spark.address, 5.0, capacity_bytes=CAPACITY_BYTES)
    try:
        yield link, call(link, secret, facts or station_facts(), 5.0)
    finally:
        link.close()


def request(
    link: Link, kind: Kind, answer: Kind, *, epoch: int = 5, rows: int = 0, parts: tuple = ()
) -> Frame:
    return ask(link, kind, answer, epoch=epoch, sequence=1, timeout_s=5.0, rows=rows, parts=parts)


def fill(link: Link, count: int = 6) -> None:
    for batch in batches(records(count), 8, CAPACITY_BYTES):
        loaded = request(link, Kind.LOAD, Kind.LOADED, rows=batch.count, parts=tuple(batch.parts))
        assert loaded.rows == batch.count
    body = encode(Commit("p1", count))
    assert request(link, Kind.COMMIT, Kind.COMMITTED, parts=(body,)).rows == count


def dispatch(link: Link, *values: int, epoch: int = 5, layer: int = 3) -> Frame:
    link.send(
        Kind.DISPATCH,
        epoch=epoch,
        sequence=9,
        layer=layer,
        rows=len(values),
        parts=(rows_of(*values),),
    )
    return link.receive(5.0)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_load_commit_dispatch_ping(transport: str) -> None:
    with thread_spark(transport) as spark, station_link(spark) as (link, facts):
        assert facts.holding is None
        fill(link)
        partial = dispatch(link, 1, 20)
        assert (partial.kind, partial.epoch, partial.sequence) == (Kind.PARTIAL, 5, 9)
        assert (partial.layer, partial.rows) == (3, 2)
        assert values_of(partial.payload) == [1 + LAYER_SUM, 20 + LAYER_SUM]
        assert partial.compute_ns > 0
        counters = decode(request(link, Kind.PING, Kind.PONG), Counters, "spark-1")
        assert (counters.loaded, counters.served_dispatches, counters.served_rows) == (6, 1, 2)
        assert counters.rss_bytes
        progress = spark.server.progress()
        assert (progress.loaded, progress.slots, progress.epoch) == (6, 8, 5)
        assert (progress.peer, progress.last_error) == ("station", None)
        assert (progress.served_dispatches, progress.served_rows) == (1, 2)
        assert progress.compute_ns == counters.compute_ns


def test_an_error_is_answered_and_the_spark_stays_up() -> None:
    with thread_spark() as spark, station_link(spark) as (link, _):
        fill(link)
        answer = dispatch(link, 1, layer=FAIL_LAYER)
        assert answer.kind is Kind.ERROR
        assert answer.sequence == 9
        failure = decode(answer, Failure, "spark-1")
        assert failure == Failure(1, "layer 78 is on fire", "put it out")
        assert spark.server.progress().last_error == "layer 78 is on fire"
        assert spark.server.progress().busy_since_s is None
        stale = decode(dispatch(link, 1, epoch=4), Failure, "spark-1")
        assert "dispatch of epoch 4, epoch 5 is loaded" in stale.message
        assert dispatch(link, 1).kind is Kind.PARTIAL


def test_long_sentences_fit_an_error_frame() -> None:
    with thread_spark() as spark, station_link(spark) as (link, _):
        link.send(Kind.COMMIT, parts=(b"\xc1" * 4000,))
        assert link.receive(5.0).kind is Kind.ERROR


def test_a_damaged_record_is_refused_and_nothing_is_held() -> None:
    with thread_spark() as spark:
        with station_link(spark) as (link, _):
            fill(link)
            batch = next(iter(batches(records(1), 8, CAPACITY_BYTES)))
            broken = (*batch.parts[:1], b"\x00" * 8)
            with pytest.raises(FabricError, match="layer 3 expert 0 does not match its digest"):
                request(link, Kind.LOAD, Kind.LOADED, rows=1, parts=broken)
            with pytest.raises(FabricError, match="8 bytes"):
                request(link, Kind.LOAD, Kind.LOADED, rows=2, parts=broken)
        with station_link(spark) as (_, facts):
            assert facts.holding is None


def test_a_commit_of_another_count_is_refused() -> None:
    with thread_spark() as spark, station_link(spark) as (link, _):
        fill(link)
        body = encode(Commit("p1", 7))
        with pytest.raises(FabricError, match="holds 6 expert slices, epoch 5 needs 7"):
            request(link, Kind.COMMIT, Kind.COMMITTED, parts=(body,))


def test_what_is_loaded_survives_the_station() -> None:
    with thread_spark() as spark:
        with station_link(spark) as (link, _):
            fill(link)
            link.send(Kind.BYE)
        with station_link(spark) as (link, facts):
            assert facts.holding is not None
            assert (facts.holding.epoch, facts.holding.placement_digest) == (5, "p1")
            assert facts.holding.records == 6
            assert values_of(dispatch(link, 0).payload) == [LAYER_SUM]
            assert request(link, Kind.RESET, Kind.LOADED).kind is Kind.LOADED
        with station_link(spark) as (_, facts):
            assert facts.holding is None
        assert len(spark.workers) == 1


def test_another_dtype_makes_another_worker() -> None:
    with thread_spark() as spark:
        with station_link(spark) as (link, _):
            fill(link)
        with station_link(spark, station_facts(dtype="fp32")) as (_, facts):
            assert facts.holding is None
        assert [worker.facts.dtype for worker in spark.workers] == ["bf16", "fp32"]


def test_a_newer_station_takes_over_and_the_older_is_told() -> None:
    with thread_spark() as spark, station_link(spark) as (old, _):
        fill(old)
        with station_link(spark, station_facts(incarnation=2)) as (new, facts):
            assert facts.holding is not None
            told = decode(old.receive(5.0), Failure, "spark-1")
            assert "turned to a newer Station" in told.message
            with pytest.raises(FabricError, match="ended the link"):
                old.receive(5.0)
            assert values_of(dispatch(new, 0).payload) == [LAYER_SUM]
            with (
                pytest.raises(HandshakeRefused, match="started later than its caller"),
                station_link(spark, station_facts(incarnation=1)),
            ):
                pass
            assert dispatch(new, 0).kind is Kind.PARTIAL
        until(lambda: spark.server.progress().peer is None, "the newer Station's end")
        with station_link(spark, station_facts(incarnation=1)) as (link, _):
            assert dispatch(link, 0).kind is Kind.PARTIAL


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_refusals_are_sentences_on_both_ends(
    transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [
        (station_facts(), OTHER_SECRET, "does not prove this pod's secret", "another pod secret"),
        (station_facts(version="0.3.0"), SECRET, "k3d 0.1.0, station runs 0.3.0", None),
        (station_facts(model_digest="c3" * 32), SECRET, "spark-1 was started for model", None),
        (station_facts(slice_index=3), SECRET, "spark-1 was started for slice 0 of 4", None),
    ]
    own = spark_facts(model_digest="a1" * 32, slice_index=0, slice_count=4)
    with thread_spark(transport, facts=own) as spark, station_link(spark) as (good, _):
        fill(good)
        for facts, secret, sentence, other_end in refused:
            caplog.clear()
            with (
                pytest.raises(HandshakeRefused, match=sentence),
                station_link(spark, facts, secret),
            ):
                pass
            heard = other_end or sentence
            until(lambda: heard in caplog.text, heard)  # noqa: B023 read at once
        assert spark.server.progress().last_error is not None
        assert dispatch(good, 0).kind is Kind.PARTIAL


@pytest.mark.parametrize("opening", [b"", b"GET / HTTP/1.1\r\n".ljust(80), b"K3FB", b"\xff" * 200])
def test_strangers_are_dropped_and_delay_nobody(
    opening: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_module, "GREETING_S", 600.0)
    caplog.set_level(logging.WARNING)
    with thread_spark("tcp") as spark, station_link(spark) as (link, _):
        fill(link)
        host, port = spark.address.split(":")
        # More of them than are greeted at a time; those that send nothing are greeted for long.
        strangers = [socket.create_connection((host, int(port)), timeout=5.0) for _ in range(12)]
        for stranger in strangers:
            stranger.sendall(opening)
        for _ in range(50):
            assert dispatch(link, 0).kind is Kind.PARTIAL
        with station_link(spark, station_facts(incarnation=2)) as (newer, _):
            assert dispatch(newer, 0).kind is Kind.PARTIAL
        for stranger in strangers:
            stranger.close()
        until(lambda: caplog.text.count("dropped a caller") == 12, "every stranger dropped")
        assert "tcp caller 127.0.0.1" in caplog.text


def test_silent_local_callers_keep_no_station_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark_module, "GREETING_S", 600.0)
    caplog.set_level(logging.WARNING)
    with ExitStack() as open_sockets, thread_spark() as spark:
        # Many more than are greeted at a time, and none of them opens its link.
        for _ in range(3 * door_module.MOST_GREETINGS):
            silent = open_sockets.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            )
            silent.connect(b"\x00" + spark.address.encode())
        with station_link(spark) as (link, _):
            fill(link)
            assert dispatch(link, 0).kind is Kind.PARTIAL
            open_sockets.close()
            count = 3 * door_module.MOST_GREETINGS
            until(lambda: caplog.text.count("turned a caller away") == count, "all turned away")


class FullListener:
    """A door of a process that has no descriptor left."""

    address = "nowhere"

    def __init__(self) -> None:
        self.asked = 0

    def accept(self, timeout_s: float) -> Caller:
        self.asked += 1
        raise FabricError("cannot accept on nowhere: Too many open files")

    def close(self) -> None:
        return


def test_a_full_door_rests_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for rest_s, asked in ((600.0, 1), (0.001, 5)):
        caplog.clear()
        monkeypatch.setattr(door_module, "REST_S", rest_s)
        listener = FullListener()
        server = SparkServer(SummingWorker, listener, SECRET, spark_facts())
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        until(lambda: listener.asked >= asked, "the door is kept")  # noqa: B023 read at once
        until(lambda: "cannot take callers" in caplog.text, "a line in the log")
        server.stop()
        thread.join(10.0)
        assert not thread.is_alive()
        assert caplog.text.count("cannot take callers") == 1
        assert asked > 1 or listener.asked == 1, "it did not ask again before the rest was over"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_spark_whose_door_broke_does_not_look_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_module, "TICK_S", 0.01)

    class BrokenListener(FullListener):
        def accept(self, timeout_s: float) -> Caller:
            raise ValueError("a bug")

    server = SparkServer(SummingWorker, BrokenListener(), SECRET, spark_facts())
    with pytest.raises(RuntimeError, match="nobody keeps the door"):
        server.run()


def test_an_idle_loop_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_module, "TICK_S", 0.02)
    with thread_spark() as spark:
        for served in (False, True):
            if served:
                link = connect("shm", spark.address, 5.0, capacity_bytes=CAPACITY_BYTES)
                call(link, SECRET, station_facts(), 5.0)
            first_s = spark.server.progress().tick_s
            until(lambda: spark.server.progress().tick_s > first_s, "a tick")  # noqa: B023
        link.close()


def test_frames_that_ask_for_nothing_are_errors() -> None:
    with thread_spark() as spark, station_link(spark) as (link, _):
        for kind in (Kind.PONG, Kind.WELCOME, Kind.PARTIAL, Kind.HELLO):
            link.send(kind)
            assert "asks for nothing" in decode(link.receive(5.0), Failure, "spark-1").message
        link.send(Kind.REFUSE, parts=(b"\xc1",))
        assert link.receive(5.0).kind is Kind.ERROR


def test_a_worker_that_cannot_be_made_refuses_the_station() -> None:
    def make(facts: Facts) -> SummingWorker:
        raise ConfigError(f"no room for {facts.slots} slots")

    server = SparkServer(make, None, SECRET, spark_facts())
    with pytest.raises(ConfigError, match="without a listener"):
        server.run()
    link = server.inproc_link()
    with pytest.raises(ConfigError, match="no room for 8 slots"):
        call(link, SECRET, station_facts(), 1.0)
    link.close()


def test_inproc_spark_serves_in_the_callers_thread() -> None:
    server = SparkServer(SummingWorker, None, SECRET, spark_facts())
    link = server.inproc_link()
    assert call(link, SECRET, station_facts(), 1.0).node == "spark-1"
    fill(link)
    before = threading.active_count()
    assert values_of(dispatch(link, 2).payload) == [2 + LAYER_SUM]
    assert threading.active_count() == before
    assert server.progress().loaded == 6
    link.close()
    refused = server.inproc_link()
    with pytest.raises(HandshakeRefused, match="does not prove"):
        call(refused, OTHER_SECRET, station_facts(), 1.0)
    refused.close()
