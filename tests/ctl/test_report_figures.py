"""What a report counts and merges: stretches, incidents, counters and quantiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3ctl.client.moments import Span
from k3ctl.client.report import build_report
from k3ctl.client.report_events import Trouble
from k3ctl.client.report_events import attention as seen_in
from k3ctl.client.report_figures import growth, unwell, weighted_quantile
from k3ctl.client.report_matters import merged
from k3d.store.frame import Attention, Frame
from tests.charts.properties import property_test
from tests.ctl.recorded import (
    FakeRecording,
    frame,
    spark,
)


def test_time_in_a_state_is_the_sum_of_its_frames() -> None:
    down = spark(2, 0, state="down", reason="gone")
    frames = [
        frame(10_000, interval_s=10.0),
        frame(20_000, interval_s=10.0, nodes=(down,), state="degraded"),
        frame(30_000, interval_s=10.0, nodes=(down,), state="degraded"),
        frame(40_000, interval_s=10.0),
    ]
    pod, node = unwell(frames)
    assert (pod.node, pod.state, pod.most_s) == (None, "degraded", 20.0)
    assert (node.node, node.state, node.most_s, node.reason) == ("spark-2", "down", 20.0, "gone")
    assert (node.since_ms, node.until_ms) == (10_000, 30_000)
    assert unwell([frame(1)]) == []


def test_two_incidents_are_two() -> None:
    """Of two nodes, one after the other: neither hides the other, nor the health between them."""

    def lost(number: int, at_ms: int, pid: int) -> dict:
        gone = spark(number, at_ms, state="down", reason=f"its process {pid} is gone")
        others = [spark(each, at_ms) for each in (1, 2, 3) if each != number]
        reason = f"spark-{number} is down: its process {pid} is gone"
        said = Attention(severity="alert", subject=f"spark-{number}", sentence=reason, kind="node")
        nodes = tuple(sorted((gone, *others), key=lambda node: node.name))
        return {"nodes": nodes, "state": "degraded", "reason": reason, "attention": (said,)}

    seconds = {53: lost(3, 53_000, 41), 54: lost(3, 54_000, 41), 77: lost(2, 77_000, 42)}
    seconds |= {78: lost(2, 78_000, 42), 79: lost(2, 79_000, 42)}
    frames = [frame(1_000 * at_s, **seconds.get(at_s, {})) for at_s in range(50, 90)]
    events = [
        Trouble(53_000, 53_000, "alert", "spark-3", "spark-3 is down: its process 41 is gone"),
        Trouble(77_000, 77_000, "alert", "spark-2", "spark-2 is down: its process 42 is gone"),
    ]
    told = [
        (each.subject, each.at_ms, each.until_ms, each.count)
        for each in merged([*events, *seen_in(frames)])
    ]
    assert sorted(told) == [("spark-2", 77_000, 79_000, 3), ("spark-3", 53_000, 54_000, 2)]
    stretches = {(each.node, each.since_ms): (each.most_s, each.reason) for each in unwell(frames)}
    assert stretches == {
        (None, 52_000): (2.0, "spark-3 is down: its process 41 is gone"),
        (None, 76_000): (3.0, "spark-2 is down: its process 42 is gone"),
        ("spark-3", 52_000): (2.0, "its process 41 is gone"),
        ("spark-2", 76_000): (3.0, "its process 42 is gone"),
    }


def test_a_node_that_is_down_twice_is_told_twice_and_another_pid_is_no_other_reason() -> None:
    def down(at_s: int, pid: int) -> Frame:
        gone = spark(2, 0, state="down", reason=f"its process {pid} is gone")
        return frame(1_000 * at_s, nodes=(gone,))

    frames = [down(1, 7), down(2, 8), frame(3_000), down(4, 9)]
    told = [(each.since_ms, each.most_s, each.reason) for each in unwell(frames)]
    assert told == [(0, 2.0, "its process 8 is gone"), (3_000, 1.0, "its process 9 is gone")]


def test_a_sentence_of_two_nodes_is_two_matters() -> None:
    """Unless it names the node itself: then whoever says it says the same."""
    twice = [Trouble(n, n, "warning", f"spark-{n}", f"its disk has {n} MiB left") for n in (1, 2)]
    assert len(merged(twice)) == 2
    said = "the link to spark-1 was lost 3 times"
    both = [Trouble(1, 1, "alert", "spark-1", said), Trouble(2, 2, "error", "station", said)]
    (one,) = merged(both)
    assert (one.subject, one.severity, one.at_ms, one.until_ms) == ("spark-1", "alert", 1, 2)
    other = Trouble(3, 3, "error", "station", said.replace("spark-1", "spark-12"))
    assert len(merged([*both, other])) == 2


def test_counts_begin_anew_with_the_station() -> None:
    def grown(*seen: tuple[float, int]) -> int:
        frames = [
            frame(1_000 * n, uptime_s=uptime_s, finished=finished)
            for n, (uptime_s, finished) in enumerate(seen)
        ]
        return growth(frames, lambda each: each.finished)

    assert grown((100.0, 7), (101.0, 9)) == 2  # the seven were before the span
    assert grown((0.5, 3), (1.5, 4)) == 4  # the Station started within it
    assert grown((100.0, 2), (3.0, 5), (4.0, 6)) == 6
    assert grown((100.0, 9), (3.0, 0), (4.0, 1)) == 1
    assert grown() == 0


@pytest.mark.parametrize(("nodes", "coarsest_s"), [(3, 60.0), (60, 300.0)])
def test_a_day_of_few_nodes_is_looked_at_finely(home: Path, nodes: int, coarsest_s: float) -> None:
    until_ms = 1_796_000_000_000 // 300_000 * 300_000
    sparks = tuple(spark(number, 0, sensors=None) for number in range(nodes))
    asked: list[int] = []

    class Recording(FakeRecording):
        def between(self, first_ms: int, last_ms: int, most: int) -> list[Frame]:
            asked.append(most)
            return super().between(first_ms, last_ms, most)

    recording = Recording([frame(until_ms - 1_000, nodes=sparks)])
    build_report(home, Span(until_ms / 1000 - 86_400, until_ms / 1000), recording, until_ms / 1000)
    (most,) = asked
    assert (most >= 86_400 / 60) is (coarsest_s == 60.0)


def test_one_matter_is_told_once() -> None:
    seen = Trouble(5, 90, "warning", "spark-1", "its sensors were read 90 s ago", source="frames")
    noted = Trouble(1, 1, "alert", "pod", "its sensors were read 11 s ago", command="k3ctl logs")
    other = Trouble(2, 2, "warning", "spark-1", "its link was lost")
    told = merged([seen, noted, other])
    assert [each.sentence for each in told] == [seen.sentence, other.sentence]
    first = told[0]
    assert (first.at_ms, first.until_ms, first.severity) == (1, 90, "alert")
    assert (first.subject, first.command) == ("spark-1", "k3ctl logs")


@property_test
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.1, 10)), min_size=1), st.floats(0, 1))
def test_a_quantile_splits_the_weight(values, share) -> None:
    found = weighted_quantile(values, share)
    whole = sum(weight for _, weight in values)
    assert found is not None
    below = sum(weight for value, weight in values if value < found)
    upto = sum(weight for value, weight in values if value <= found)
    assert below <= share * whole + 1e-6
    assert upto >= share * whole - 1e-6
    assert weighted_quantile([], share) is None
