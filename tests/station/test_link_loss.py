"""Links that are lost: sparks that are killed, stall or fail, in a hop and between hops."""

from __future__ import annotations

import logging
import signal
from dataclasses import replace
from time import monotonic

import pytest

from k3d.errors import NodeLost
from k3d.station.membership import LinkTimes
from tests.fabric.summing_spark import (
    FAIL_LAYER,
    HANG_LAYER,
    LAYER_SUM,
    SparkProcess,
    end_process,
    hop,
    rows_of,
    spark_process,
    start_process,
    thread_spark,
    until,
)
from tests.station.linking import PATIENT, TRANSPORTS, at, link_to, lost


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
