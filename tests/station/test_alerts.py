"""Alerts of a Station and the marks of its routing, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from k3d.experts.expert_use import ExpertUse
from k3d.placement.alert_policy import AlertPolicy, load_alerts
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.population import Population, origin_of
from k3d.station.alerts import Alerts
from k3d.station.drift_marks import MARKS, UseMarks
from k3d.store.frame import Attention, Frame, NodeFrame, State
from k3d.store.state import StateStore

LAYERS, EXPERTS, TOP_K = (1, 2), 32, 2
POLICY = """schema = "k3-alerts/1"
every_s = 1
[drift]
every_s = 10
window_s = 100
[[rule]]
watch = "node-down"
severity = "alert"
for_s = 3
clear_s = 3
[[rule]]
watch = "drift"
"""


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Counted(ExpertUse):
    """Counts that a test sets."""

    def __init__(self) -> None:
        self.rows = 0
        self.counts = np.zeros((len(LAYERS), EXPERTS), np.int64)

    def snapshot(self) -> np.ndarray:
        return self.counts.copy()

    def choose(self, rows: int, first: int) -> None:
        """So many rows, each of two experts of those from `first` on, evenly."""
        for row in range(rows):
            for pick in range(TOP_K):
                self.counts[:, first + (2 * row + pick) % 8] += 1
        self.rows += rows


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def use() -> Counted:
    return Counted()


@pytest.fixture
def store(home: Path) -> Iterator[StateStore]:
    with StateStore.open_as_writer(home, holder="test") as opened:
        yield opened


@pytest.fixture
def policy(tmp_path: Path) -> AlertPolicy:
    path = tmp_path / "alerts.toml"
    path.write_text(POLICY)
    return load_alerts(str(path))


def planned(epoch: int = 1) -> PlacementMap:
    """A map made for traffic that takes the first eight experts."""
    counts = np.zeros((len(LAYERS), EXPERTS), np.int64)
    counts[:, :8] = 500
    known = Population(counts, 2000, TOP_K, 1.0, "measured", "a trace")
    placed = number_slots(epoch, ("hbm", "spark"), LAYERS, EXPERTS, bytes(2 * EXPERTS))
    return replace(placed, origin=origin_of(known, "hot-cold"))


def frame(state: State) -> Frame:
    node = NodeFrame(name="spark-1", role="spark", state=state, reason="it ended")
    return Frame(at_ms=1, sequence=1, interval_s=1.0, pod="tiny", state=state, nodes=(node,))


def test_marks_look_back_to_the_map_or_a_time(clock: Clock, use: Counted) -> None:
    use.choose(5, 0)
    marks = UseMarks(use, TOP_K, 240.0, 1, clock)
    assert marks.since(None)[1].tokens == 0, "what was chosen before does not count"
    for _ in range(3 * MARKS):
        clock.now_s += 10.0
        use.choose(10, 0)
        marks.tick(1)
    age_s, seen = marks.since(None)
    assert (age_s, seen.tokens, seen.top_k) == (720.0, 720, TOP_K)
    assert seen.counts.sum() == 720 * TOP_K * len(LAYERS)
    assert marks.since(100.0)[1].tokens in (100, 110)
    oldest = marks.since(10_000.0)
    assert oldest[0] == 240.0, "as far as marks go"
    clock.now_s += 5.0
    marks.tick(2)
    use.choose(7, 8)
    clock.now_s += 1.0
    assert marks.since(None)[1].tokens == 7
    assert marks.since(100.0)[0] == 1.0, "no further back than the map"
    assert marks.since(100.0)[1].tokens == 7


def test_what_was_chosen_before_a_turn_is_never_the_new_maps(
    clock: Clock, use: Counted, store: StateStore, policy: AlertPolicy
) -> None:
    """Also between a turn and the next look at the rules."""
    served = [planned()]
    marks = UseMarks(use, TOP_K, 100.0, 1, clock)
    alerts = Alerts(policy, store, marks, lambda: served[0], lambda: None, clock=clock)
    for _ in range(20):
        clock.now_s += 1.0
        use.choose(10, 0)
        alerts.step()
    assert alerts.seen(None)[1].tokens == 200
    served[0] = planned(2)
    assert [alerts.seen(time_s)[1].tokens for time_s in (None, 10.0, 1000.0)] == [0, 0, 0]
    use.choose(7, 8)
    clock.now_s += 1.0
    for time_s in (None, 10.0):
        age_s, seen = alerts.seen(time_s)
        assert (age_s, seen.tokens) == (1.0, 7)


def test_an_alert_is_an_event_once_and_stands_until_it_is_over(
    clock: Clock, use: Counted, store: StateStore, policy: AlertPolicy
) -> None:
    now: dict[str, Frame | None] = {"frame": None}
    note = Attention(severity="note", subject="pod", sentence="a note")
    marks = UseMarks(use, TOP_K, 100.0, 1, clock)
    placed = planned()
    alerts = Alerts(
        policy, store, marks, lambda: placed, lambda: now["frame"], lambda: (note,), clock
    )

    def run(seconds: int, state: State, rows: int, first: int) -> None:
        now["frame"] = frame(state)
        for _ in range(seconds):
            clock.now_s += 1.0
            use.choose(rows, first)
            alerts.step()

    run(30, "healthy", 20, 0)
    assert alerts.current() == (note,)
    assert store.events() == []
    assert alerts.drift is not None
    assert alerts.drift.verdict == "none"
    run(60, "down", 100, 16)
    events = [event for event in store.events() if event.kind == "alert"]
    assert [(event.node, event.message.partition(":")[0]) for event in events] == [
        ("spark-1", "spark-1 is down"),
        (None, "the traffic has drifted from what the map in force was planned from"),
    ]
    assert all(event.detail and event.detail["raised"] for event in events)
    standing = alerts.current()
    assert [each.severity for each in standing] == ["warning", "note"]
    assert standing[0].command == "k3ctl placement drift"
    run(130, "healthy", 400, 0)
    over = [event.message for event in store.events() if event.message.startswith("over: ")]
    assert [each.partition(":")[2].partition(":")[0].strip() for each in over] == [
        "spark-1 is down",
        "the traffic has drifted from what the map in force was planned from",
    ]
    assert alerts.current() == (note,)


def test_a_map_without_a_trace_and_few_tokens_are_no_alert(
    clock: Clock, use: Counted, store: StateStore, policy: AlertPolicy
) -> None:
    for placed, rows in ((replace(planned(), origin=None), 100), (planned(), 1)):
        marks = UseMarks(use, TOP_K, 100.0, 1, clock)
        alerts = Alerts(policy, store, marks, lambda p=placed: p, lambda: None, clock=clock)
        for _ in range(30):
            clock.now_s += 1.0
            use.choose(rows, 16)
            alerts.step()
        assert alerts.current() == ()
    assert store.events() == []
