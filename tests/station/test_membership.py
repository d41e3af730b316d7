"""The Station's links: filled, lost with the reason, filled again; with real spark processes."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from k3d.errors import BankError, ExitCode, FabricError, NodeLost, Refused, TimedOut
from k3d.fabric import Facts, Frame, Link, Record, connect
from k3d.fabric.frames import Buffer, Kind
from k3d.node.spark import SparkServer
from k3d.station.membership import LinkTimes, Membership, SparkLink
from k3d.store.frame import Sensors
from tests.fabric.summing_spark import (
    CAPACITY_BYTES,
    FAIL_LAYER,
    HANG_LAYER,
    LAYER_SUM,
    OTHER_SECRET,
    QUICK,
    SECRET,
    SparkProcess,
    SummingWorker,
    end_process,
    hop,
    records,
    rows_of,
    spark_facts,
    spark_process,
    start_process,
    station_facts,
    thread_spark,
    until,
)

TRANSPORTS = ["shm", "tcp"]
PATIENT = replace(QUICK, hop_s=600.0, ping_s=600.0, ping_every_s=600.0)
"""With these only the end of a process can end its link."""


@contextmanager
def link_to(
    where: Callable[[float], Link],
    *,
    facts: Facts | None = None,
    secret: bytes = SECRET,
    times: LinkTimes = QUICK,
    fills: list[int] | None = None,
) -> Iterator[SparkLink]:
    """A started SparkLink; `fills` gets an entry at every refill."""

    def source() -> Iterator[Record]:
        if fills is not None:
            fills.append(len(fills))
        return records()

    link = SparkLink(facts or station_facts(), where, secret, source, times=times)
    link.start()
    try:
        yield link
    finally:
        link.close()


def at(transport: str, address: Callable[[], str]) -> Callable[[float], Link]:
    return lambda timeout_s: connect(transport, address(), timeout_s, capacity_bytes=CAPACITY_BYTES)


def lost(link: SparkLink) -> Callable[[], bool]:
    return lambda: link.snapshot().state == "lost"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_filled_ready_and_serving(transport: str) -> None:
    fills: list[int] = []
    with (
        thread_spark(transport) as spark,
        link_to(at(transport, lambda: spark.address), fills=fills) as link,
    ):
        link.wait_ready(5.0)
        assert hop(link, 1, 2, 3) == [1 + LAYER_SUM, 2 + LAYER_SUM, 3 + LAYER_SUM]
        assert hop(link, 7, layer=4) == [7]
        now = link.snapshot()
        assert (now.state, now.reason, now.loaded, now.slots, now.epoch) == ("ready", None, 6, 8, 5)
        assert (now.slice_index, now.slice_count, now.pid) == (0, 4, os.getpid())
        assert now.rtt_us
        assert now.hop_us
        assert now.compute_us
        assert now.hop_us > now.compute_us
        assert now.progress_age_s is not None
        assert now.waiting_s is None
        assert link.hop_ns == pytest.approx(now.hop_us * 1000)
        assert len(fills) == 1


def test_pings_keep_an_idle_link_fresh() -> None:
    times = LinkTimes(ping_every_s=0.03)
    with (
        thread_spark() as spark,
        link_to(at("shm", lambda: spark.address), times=times) as link,
    ):
        link.wait_ready(5.0)
        hop(link, 1)
        until(lambda: link.snapshot().served_dispatches == 1, "a pong after the hop")


def test_pings_and_hops_share_a_link_without_mixing_answers() -> None:
    times = LinkTimes(ping_every_s=0.001)
    with (
        thread_spark() as spark,
        link_to(at("shm", lambda: spark.address), times=times) as link,
    ):
        link.wait_ready(5.0)
        rest = threading.Event()
        for value in range(300):
            assert hop(link, value) == [value + LAYER_SUM]
            rest.wait(0.001)
        assert link.ready
        until(lambda: (link.snapshot().served_dispatches or 0) > 0, "a pong that counts the hops")


def test_not_there_yet_is_connecting_and_then_joins() -> None:
    address = "k3-test-nobody"
    with link_to(at("shm", lambda: address)) as link:
        until(lambda: link.snapshot().reason is not None, "the first try")
        with pytest.raises(
            TimedOut, match=r"spark-1 is connecting after 0\.0 s: spark-1: nothing answers"
        ):
            link.wait_ready(0.01)
        with pytest.raises(NodeLost, match="nothing answers") as caught:
            link.begin(3, 1, [rows_of(1)])
        assert caught.value.node == "spark-1"
        with thread_spark() as spark:
            address = spark.address
            link.wait_ready(5.0)
            link.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_kill_in_mid_hop_names_the_node_and_a_restarted_spark_is_filled(transport: str) -> None:
    fills: list[int] = []
    running: list[SparkProcess] = [start_process(transport)]
    try:
        where = at(transport, lambda: running[-1].address)
        with link_to(where, times=PATIENT, fills=fills) as link:
            link.wait_ready(10.0)
            assert hop(link, 5) == [5 + LAYER_SUM]
            link.begin(HANG_LAYER, 1, [rows_of(1)])
            running[-1].signal(signal.SIGKILL)
            with pytest.raises(NodeLost, match="spark-1 ended the link") as caught:
                link.finish()
            assert caught.value.node == "spark-1"
            assert link.snapshot().state == "lost"
            end_process(running[-1])
            running.append(start_process(transport))
            link.wait_ready(10.0)
            assert hop(link, 6) == [6 + LAYER_SUM]
            assert len(fills) == 2
    finally:
        end_process(running[-1])


def test_kill_of_an_idle_spark_shows_at_once() -> None:
    times = replace(PATIENT, retry_first_s=600.0)  # the next try has a reason of its own
    with (
        spark_process() as spark,
        link_to(at("shm", lambda: spark.address), times=times) as link,
    ):
        link.wait_ready(10.0)
        spark.signal(signal.SIGKILL)
        until(lost(link), "the link is lost")
        assert "ended the link" in (link.snapshot().reason or "")


def test_kill_while_the_engine_is_elsewhere_fails_the_hop() -> None:
    """The link may even be up again before the engine comes back for its answer."""
    with (
        spark_process() as first,
        spark_process() as second,
    ):
        addresses = [first.address]
        with link_to(at("shm", lambda: addresses[-1])) as link:
            link.wait_ready(10.0)
            link.begin(HANG_LAYER, 1, [rows_of(1)])
            addresses.append(second.address)
            first.kill()
            until(lambda: link.ready and link.snapshot().pid == second.process.pid, "second")
            with pytest.raises(NodeLost, match="lost the dispatch of layer 77"):
                link.finish()
            assert hop(link, 1) == [1 + LAYER_SUM]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_stalled_in_mid_hop_is_lost_by_the_deadline_and_rejoins(transport: str) -> None:
    times = LinkTimes(hop_s=0.3, hop_row_s=0.0, retry_first_s=0.02, retry_most_s=0.1)
    fills: list[int] = []
    with (
        spark_process(transport) as spark,
        link_to(at(transport, lambda: spark.address), times=times, fills=fills) as link,
    ):
        link.wait_ready(10.0)
        spark.signal(signal.SIGSTOP)
        link.begin(3, 1, [rows_of(1)])
        begun = monotonic()
        with pytest.raises(NodeLost, match=r"spark-1 did not answer layer 3 \(1 rows\)"):
            link.finish()
        assert monotonic() - begun > 0.25
        with pytest.raises(NodeLost):
            link.begin(3, 1, [rows_of(1)])
        spark.signal(signal.SIGCONT)
        link.wait_ready(10.0)
        assert hop(link, 8) == [8 + LAYER_SUM]
        assert len(fills) == 1, "the spark still held its slices"


def test_stalled_while_idle_is_lost_in_under_two_seconds_and_rejoins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    times = LinkTimes()
    assert times.ping_every_s + times.ping_s < 2.0
    with (
        spark_process() as spark,
        link_to(at("shm", lambda: spark.address), times=times) as link,
    ):
        link.wait_ready(10.0)
        spark.signal(signal.SIGSTOP)
        until(lambda: "spark-1 is lost: spark-1 did not answer PING" in caplog.text, "lost")
        spark.signal(signal.SIGCONT)
        link.wait_ready(10.0)


def test_a_late_answer_shows_before_the_deadline() -> None:
    times = LinkTimes(late_s=0.05, hop_s=30.0)
    with spark_process() as spark, link_to(at("shm", lambda: spark.address), times=times) as link:
        link.wait_ready(10.0)
        link.begin(HANG_LAYER, 1, [rows_of(1)])
        until(lambda: link.snapshot().reason is not None, "a reason")
        now = link.snapshot()
        assert now.state == "ready"
        assert "has not answered layer 77" in (now.reason or "")
        assert (now.waiting_s or 0.0) > 0.05


def test_a_spark_that_cannot_serve_loses_the_hop_with_its_sentence() -> None:
    fills: list[int] = []
    with (
        thread_spark() as spark,
        link_to(at("shm", lambda: spark.address), fills=fills) as link,
    ):
        link.wait_ready(5.0)
        link.begin(FAIL_LAYER, 1, [rows_of(1)])
        with pytest.raises(
            NodeLost, match=r"spark-1 did not serve layer 78: layer 78 is on fire \(FAILED\)"
        ):
            link.finish()
        link.wait_ready(5.0)
        assert hop(link, 1) == [1 + LAYER_SUM]
        assert len(fills) == 2, "what a failing spark holds is not trusted"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_records_that_cannot_be_read_are_not_silence() -> None:
    def source() -> Iterator[Record]:
        raise RuntimeError("the bank is gone")
        yield

    with thread_spark() as spark:
        link = SparkLink(station_facts(), at("shm", lambda: spark.address), SECRET, source)
        link.start()
        until(lambda: link.snapshot().state == "lost", "the link is lost")
        assert "thread for spark-1 failed" in (link.snapshot().reason or "")
        link.close()


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


def test_inproc_sparks_are_the_same_to_the_station() -> None:
    servers = [
        SparkServer(SummingWorker, None, SECRET, spark_facts(f"spark-{index}"))
        for index in range(4)
    ]

    def link(index: int, server: SparkServer) -> SparkLink:
        facts = station_facts(f"spark-{index}", slice_index=index)
        return SparkLink(facts, lambda _: server.inproc_link(), SECRET, records, times=QUICK)

    membership = Membership([link(index, server) for index, server in enumerate(servers)])
    membership.start()
    membership.wait_all_ready(5.0)
    assert membership.ready()
    assert len(membership) == 4
    parts: list[Buffer] = [rows_of(10)]
    for spark in membership:
        spark.begin(3, 1, parts)
    membership.settle()
    assert [hop(spark, 1) for spark in membership] == [[1 + LAYER_SUM]] * 4
    assert {state.state for state in membership.states()} == {"ready"}
    membership.close()


def test_one_lost_spark_leaves_the_others_alone() -> None:
    with spark_process(name="spark-0") as first, spark_process(name="spark-1") as second:
        links = [
            SparkLink(
                station_facts(f"spark-{index}", slice_index=index),
                at("shm", lambda address=spark.address: address),
                SECRET,
                records,
                times=QUICK,
            )
            for index, spark in enumerate((first, second))
        ]
        membership = Membership(links)
        membership.start()
        membership.wait_all_ready(10.0)
        first.kill()
        until(lost(links[0]), "spark-0 is lost")
        assert not membership.ready()
        assert hop(links[1], 4) == [4 + LAYER_SUM]
        with pytest.raises(TimedOut, match="spark-0 is lost"):
            membership.wait_all_ready(0.1)
        membership.close()


def shared_memory() -> list[Path]:
    """What has a name in shared memory and could be of a pod."""
    return sorted(Path("/dev/shm").glob("*k3*"))


def test_nothing_is_left_behind() -> None:
    def fabric_sockets() -> set[str]:
        rows = Path("/proc/self/net/unix").read_text(encoding="ascii").split("\n")
        return {row.rpartition("@")[2] for row in rows if "@k3-" in row}

    shared = shared_memory()
    with spark_process() as spark, link_to(at("shm", lambda: spark.address)) as link:
        link.wait_ready(10.0)
        hop(link, 1)
        assert spark.address in fabric_sockets()
        spark.kill()
        until(lambda: spark.address not in fabric_sockets(), "the socket's name is gone")
    assert shared_memory() == shared


def test_counters_and_sensors_stay_fresh_while_hop_follows_hop() -> None:
    read = iter(range(1_000_000))
    times = replace(QUICK, ping_every_s=0.2, count_every_s=0.1)

    def sensors() -> Sensors:
        return Sensors(age_s=0.5, power_w=float(next(read)))

    with (
        thread_spark(sensors=sensors) as spark,
        link_to(at("shm", lambda: spark.address), times=times) as link,
    ):
        link.wait_ready(10.0)
        seen: set[float | None] = set()
        until_s = monotonic() + 30.0
        while len(seen) < 5:
            assert hop(link, 1, 2) == [1 + LAYER_SUM, 2 + LAYER_SUM]
            found = link.snapshot()
            seen.add(found.sensors.power_w if found.sensors is not None else None)
            assert monotonic() < until_s, f"only {seen}"
        assert found.state == "ready"
        assert found.counters_age_s is not None
        assert found.counters_age_s < 30.0
        assert link.hops.count > 0
