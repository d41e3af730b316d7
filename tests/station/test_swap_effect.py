"""What hops took before a swap and after it: of one map each, however late they come."""

from __future__ import annotations

from collections.abc import Callable

from k3d.experts.hop_log import HopLog
from k3d.station.swap_effect import AFTER_HOPS, AFTER_S, EffectMeter

HOP_NS = 7_000


class Waiting:
    """A clock that goes on with every wait; `meanwhile` is called with the time, and its True is
    that there is something better to do."""

    def __init__(self, meanwhile: Callable[[float], bool]) -> None:
        self.now_s = 0.0
        self._meanwhile = meanwhile

    def clock(self) -> float:
        return self.now_s

    def elsewhere(self, time_s: float) -> bool:
        assert self.now_s < 10_000, "it waits for ever"
        self.now_s += time_s
        return self._meanwhile(self.now_s)


def after(hops: HopLog, meanwhile: Callable[[float], bool]) -> tuple[float, int, float | None]:
    """Seconds waited, and hops and p50 of the first tier after a swap."""
    waiting = Waiting(meanwhile)
    meter = EffectMeter(hops, 1, waiting.clock)
    hops.note(0, HOP_NS // 2, 0, 1, 4)
    assert [each.hops for each in meter.until_now() if each.moment == "during"] == [1, 0]
    meter.wait_for_more(waiting.elsewhere)
    found = meter.after()
    assert {each.moment for each in found} == {"after"}
    return waiting.now_s, found[0].hops, found[0].p50_us


def test_a_pod_that_nobody_asks_is_waited_for() -> None:
    hops = HopLog(("hbm", "spark"))

    def one_late_answer(now_s: float) -> bool:
        if 600.0 <= now_s < 601.0:
            hops.note(0, HOP_NS, 0, 1, 4)
        return False

    waited_s, count, p50_us = after(hops, one_late_answer)
    assert 600.0 + AFTER_S <= waited_s < 602.0 + AFTER_S
    assert 4 <= count <= 6
    assert p50_us == HOP_NS / 1000


def test_many_hops_are_enough_at_once() -> None:
    hops = HopLog(("hbm", "spark"))

    def busy(_now_s: float) -> bool:
        for _ in range(AFTER_HOPS):
            hops.note(0, HOP_NS, 0, 1, 4)
        return False

    waited_s, count, _ = after(hops, busy)
    assert (waited_s < 1.0, count) == (True, AFTER_HOPS)


def test_another_swap_ends_the_wait() -> None:
    hops = HopLog(("hbm", "spark"))
    waited_s, count, p50_us = after(hops, lambda now_s: now_s >= 30.0)
    assert (round(waited_s), count, p50_us) == (30, 0, None)


def test_before_is_of_the_map_that_the_swap_leaves() -> None:
    hops = HopLog(("hbm", "spark"))
    for took_ns in (HOP_NS, HOP_NS):
        hops.note(0, took_ns, 0, 1, 4)
    hops.turn()
    hops.note(0, 3 * HOP_NS, 0, 1, 4)
    before = [each for each in EffectMeter(hops, 1).until_now() if each.moment == "before"]
    assert [(each.hops, each.p50_us) for each in before] == [(1, 3 * HOP_NS / 1000), (0, None)]
