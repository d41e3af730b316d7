"""The pace of a swap: bytes a second, pauses for slow hops, and the end of both."""

from __future__ import annotations

import threading

import pytest

from k3d.experts.hop_log import HopLog
from k3d.station.swap_pace import (
    BATCH_NS,
    FIRST_BATCH_BYTES,
    LARGEST_BATCH_BYTES,
    LEAST_HOPS,
    SMALLEST_BATCH_BYTES,
    Halted,
    LatencyGuard,
    Pace,
    RateLimit,
)
from k3d.station.swap_progress import SwapProgress


def hops(log: HopLog, time_us: int, count: int = LEAST_HOPS, rows: int = 4) -> None:
    for _ in range(count):
        log.note(0, 1000 * time_us, 0, rows, 8)


def progress() -> SwapProgress:
    return SwapProgress("swap", 1, 10, 1000, 500)


def test_the_rate_holds_over_batches_and_idle_time_is_not_saved_up() -> None:
    now = [100.0]
    rate = RateLimit(1000, lambda: now[0])
    assert rate.wait_s() == 0.0
    for _ in range(3):
        rate.pay(500)
    assert rate.wait_s() == pytest.approx(1.5)
    now[0] += 60.0
    assert rate.wait_s() == 0.0
    rate.pay(500)
    assert rate.wait_s() == pytest.approx(0.5)


def test_hops_much_slower_than_before_the_swap_ask_for_a_pause() -> None:
    log = HopLog(("hbm",))
    hops(log, 1000)
    guard = LatencyGuard(log, most_rows=16)
    assert guard.trouble() is None
    hops(log, 1900)
    assert guard.trouble() is None
    hops(log, 9000, rows=17)
    assert guard.trouble() is None, "a chunk's hop is no lane's"
    hops(log, 2600)
    assert guard.trouble() == "hops to hbm take 2.60 ms (p99), 1.00 ms without the swap"


def test_what_hops_take_in_a_pause_is_usual_from_then_on() -> None:
    log = HopLog(("hbm",))
    hops(log, 1000)
    guard = LatencyGuard(log, most_rows=16)
    hops(log, 5000)
    assert guard.trouble() is not None
    guard.rest()
    assert not guard.enough_rest()
    hops(log, 4000)  # slow without the swap, too
    assert guard.enough_rest()
    guard.rested()
    hops(log, 5000)
    assert guard.trouble() is None


def test_without_hops_nothing_is_guarded() -> None:
    guard = LatencyGuard(HopLog(("hbm", "spark")), most_rows=16)
    guard.rest()
    guard.rested()
    assert guard.trouble() is None


def test_a_pause_is_told_and_makes_batches_smaller() -> None:
    log, told, halt = HopLog(("hbm",)), progress(), threading.Event()
    hops(log, 1000)
    pace = Pace(RateLimit(10**12), LatencyGuard(log, 16), halt, told)
    hops(log, 5000)
    pace.before(100)
    assert (told.pauses, told.paused) == (1, None)
    assert pace.batch_bytes == FIRST_BATCH_BYTES // 2


def test_batches_are_as_large_as_a_spark_takes_quickly() -> None:
    pace = Pace(
        RateLimit(10**12), LatencyGuard(HopLog(("hbm",)), 16), threading.Event(), progress()
    )
    for _ in range(40):
        pace.took(0)
    assert pace.batch_bytes == LARGEST_BATCH_BYTES
    pace.took(BATCH_NS + 1)
    assert pace.batch_bytes == LARGEST_BATCH_BYTES // 2
    pace.took(BATCH_NS)
    assert pace.batch_bytes == LARGEST_BATCH_BYTES // 2
    for _ in range(40):
        pace.took(2 * BATCH_NS)
    assert pace.batch_bytes == SMALLEST_BATCH_BYTES


def test_a_halt_ends_every_wait() -> None:
    halt, told = threading.Event(), progress()
    pace = Pace(RateLimit(1), LatencyGuard(HopLog(("hbm",)), 16), halt, told)
    pace.before(10**6)
    halt.set()
    for wait in (lambda: pace.before(1), lambda: pace.hold("spark-1 is lost", 600.0), pace.check):
        with pytest.raises(Halted):
            wait()
    assert told.paused is None
