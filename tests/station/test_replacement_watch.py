"""The watch over lost sparks, with links, a reconciler and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from k3d.errors import Locked, NotFound, Refused
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.pod import PodDescription, parse_pod
from k3d.placement.slicing import slicing_of
from k3d.placement.swap_plan import SwapPlan, plan_swap
from k3d.station.replacement import START_S, Replacement
from k3d.store.records import Intent
from k3d.store.state import StateStore

EXPERTS = 16
POD = """
schema = "k3-pod/1"
name = "tiny"
model = "m"
[replacement]
after_s = 4
return_after_s = 6
[[node]]
name = "station"
role = "station"
[[node.tier]]
name = "hbm"
slots = 16
[[node]]
name = "spark-1"
role = "spark"
[[node.tier]]
name = "spark"
slots = 16
[[node]]
name = "spark-2"
role = "spark"
[[node.tier]]
name = "spark"
slots = 16
"""


@dataclass
class Reconciler:
    """Carries out at once what it is asked, when the test says so."""

    station: Any
    begun: list[dict[str, Any]] = field(default_factory=list)
    done: list[Intent] = field(default_factory=list)
    under_way: Intent | None = None
    goal: PlacementMap | None = None
    aborted: int = 0
    gave_way: int = 0
    busy: bool = False

    @property
    def swaps(self) -> Any:
        return SimpleNamespace(last_done=lambda: self.done[-1] if self.done else None)

    def plan(self, wanted: PlacementMap, sparks: list[str] | None = None) -> SwapPlan:
        assert sparks is None
        now = self.station.placement
        return plan_swap(now, wanted, self.station.slots, now.epoch + 1)

    def begin(self, made: SwapPlan, name: str, figures: dict[str, Any], rate: int) -> Intent:
        if self.busy:
            raise Locked("another swap is under way")
        self.begun.append({"name": name, **figures})
        plan = {"from_epoch": self.station.placement.epoch, **figures}
        self.under_way = Intent(f"i{len(self.begun)}", "swap", "running", None, plan, 0, 0)
        self.goal = made.final
        return self.under_way

    def end(self) -> None:
        assert self.under_way is not None
        self.station.maps[self.station.placement.epoch] = self.station.placement
        self.station.placement = self.goal
        self.done.append(self.under_way)
        self.under_way = None

    def abort(self) -> None:
        if self.under_way is None:
            raise Refused("it has turned")
        self.aborted += 1
        self.under_way = None

    def give_way(self, _reason: str) -> None:
        self.gave_way += 1

    def map_of(self, epoch: int) -> tuple[str, PlacementMap]:
        return f"policy of {epoch}", self.station.maps[epoch]

    def cut_back(self, _epoch: int) -> dict[str, Any]:
        return {}


@dataclass
class Pod:
    """A Station with eight experts in hbm and eight on two sparks."""

    description: PodDescription
    store: StateStore
    now_s: float = 100.0
    states: dict[str, str] = field(default_factory=lambda: {"spark-1": "ready", "spark-2": "ready"})

    def __post_init__(self) -> None:
        membership = SimpleNamespace(
            states=lambda: [SimpleNamespace(node=n, state=s) for n, s in self.states.items()],
            ready=lambda: set(self.states.values()) == {"ready"},
        )
        self.station: Any = SimpleNamespace(
            pod=self.description,
            membership=membership,
            slots={"hbm": 16, "spark": 16},
            placement=number_slots(1, ("hbm", "spark"), (1,), EXPERTS, bytes([0] * 8 + [1] * 8)),
            in_force=SimpleNamespace(slicing=slicing_of(self.description)),
            use=SimpleNamespace(snapshot=lambda: np.zeros((1, EXPERTS), np.int64)),
            bank=SimpleNamespace(header=SimpleNamespace(record_bytes=64)),
            maps={},
        )
        self.reconciler: Any = Reconciler(self.station)
        self.watch = Replacement(self.station, self.reconciler, self.store, lambda: self.now_s)

    def run(self, seconds: float, **states: str) -> str | None:
        """The standing after so many seconds with these links."""
        self.states.update({name.replace("_", "-"): state for name, state in states.items()})
        for _ in range(round(2 * seconds)):
            self.now_s += 0.5
            self.watch.step()
        return self.watch.standing.state if self.watch.standing is not None else None

    def events(self) -> list[str]:
        return [event.message for event in self.store.events() if event.kind == "replacement"]


@pytest.fixture
def store(home: Path) -> Iterator[StateStore]:
    with StateStore.open_as_writer(home, holder="test") as opened:
        yield opened


@pytest.fixture
def pod(store: StateStore) -> Pod:
    return Pod(parse_pod(POD.encode()), store)


def test_a_spark_that_is_only_coming_is_not_missed_at_once(pod: Pod) -> None:
    assert pod.run(START_S - 1, spark_1="connecting", spark_2="loading") is None
    assert pod.run(2.5) == "waiting"
    assert pod.run(1, spark_1="ready", spark_2="ready") is None
    assert len(pod.events()) == 1


def test_it_waits_places_stays_and_returns(pod: Pod) -> None:
    assert pod.run(10) is None
    assert pod.run(3.5, spark_2="lost") == "waiting"
    assert pod.watch.attention()[0].severity == "alert"
    assert pod.reconciler.begun == []
    assert pod.run(1.5) == "placing"
    assert pod.reconciler.begun == [
        {
            "name": "the Station's tiers, without spark-2", "size_bytes": 8 * 64, "parked": 0,
            "without": ["spark-2"], "before": 1,
        }
    ]  # fmt: skip
    assert pod.reconciler.gave_way == 1
    pod.reconciler.end()
    assert pod.run(30) == "placed"
    assert pod.watch.attention()[0].severity == "warning"
    assert pod.run(5, spark_2="ready") == "back"
    assert pod.run(2, spark_2="lost") == "placed", "not back long enough"
    assert pod.run(5, spark_2="ready") == "back"
    assert pod.run(2) == "returning"
    assert pod.reconciler.begun[-1] == {
        "name": "policy of 1", "size_bytes": 8 * 64, "parked": 0, "back": ["spark-2"]
    }  # fmt: skip
    pod.reconciler.end()
    assert pod.run(1) is None
    assert pod.station.placement.counts == {"hbm": 8, "spark": 8}
    assert len(pod.events()) == 5, "each sentence once"
    assert pod.run(5, spark_1="lost") == "placing", "and so the next time"


def test_a_spark_back_in_time_ends_it(pod: Pod) -> None:
    pod.run(6)
    assert pod.run(5, spark_1="lost") == "placing"
    assert pod.run(1, spark_1="ready") is None
    assert pod.reconciler.aborted == 1
    assert pod.station.placement.epoch == 1
    assert "spark-1 is back before its experts were placed anew" in pod.events()


def test_another_swap_is_tried_behind_again(pod: Pod) -> None:
    pod.run(6)
    pod.reconciler.busy = True
    assert pod.run(8, spark_1="lost") == "waiting"
    pod.reconciler.busy = False
    assert pod.run(5) == "placing"


def test_what_an_operator_asks_for(pod: Pod) -> None:
    with pytest.raises(NotFound, match="no spark that holds experts is lost"):
        pod.watch.wanted()
    pod.run(1, spark_1="lost", spark_2="lost")
    name, wanted, extra = pod.watch.wanted()
    assert name == "the Station's tiers, without spark-1 and spark-2"
    assert wanted.counts == {"hbm": 16, "spark": 0}
    assert extra == {"without": ["spark-1", "spark-2"], "before": 1}
    pod.station.slots["hbm"] = 10
    assert pod.run(20) == "short"
    with pytest.raises(Refused, match="6 short"):
        pod.watch.wanted()
    assert pod.reconciler.begun == []


def test_where_there_is_no_room_the_spark_that_is_left_is_asked(pod: Pod) -> None:
    pod.station.slots["hbm"] = 10
    pod.run(1, spark_1="lost")
    name, wanted, extra = pod.watch.wanted()
    assert name == "the Station's tiers and, in whole experts, spark-2, without spark-1"
    assert extra["sparks"] == ["spark-2"]
    assert wanted.counts == {"hbm": 8, "spark": 8}, "eight is what half of the slots hold"
