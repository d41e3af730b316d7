"""The Station's links: filled, ready, serving, joined again; with real spark processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from k3d.errors import NodeLost, TimedOut
from k3d.fabric import Record
from k3d.fabric.frames import Buffer
from k3d.node.spark import SparkServer
from k3d.station.membership import LinkTimes, Membership, SparkLink
from k3d.store.frame import Sensors
from tests.fabric.summing_spark import (
    LAYER_SUM,
    QUICK,
    SECRET,
    SummingWorker,
    hop,
    records,
    rows_of,
    spark_facts,
    spark_process,
    station_facts,
    thread_spark,
    until,
)
from tests.station.linking import TRANSPORTS, at, link_to, lost


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
