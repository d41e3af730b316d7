"""Swaps in state.db: intents, steps, turns and effects, and what a restart finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3d.errors import StoreError
from k3d.store.state import StateStore
from k3d.store.swaps import SwapEffect, SwapStore


@pytest.fixture
def store(home: Path) -> Iterator[StateStore]:
    with StateStore.open_as_writer(home, holder="test") as opened:
        yield opened


@pytest.fixture
def swaps(store: StateStore) -> SwapStore:
    return SwapStore(store)


def plan(name: str, *, returns: bool = False) -> dict:
    return {"name": name, "from_epoch": 1, "returns": returns, "map": {"large": True}}


def test_what_is_unfinished_ended_and_done(store: StateStore, swaps: SwapStore) -> None:
    store.record_intent("other", {})
    assert (swaps.unfinished(), swaps.last_ended(), swaps.last_done()) == ([], None, None)
    first, second, third = (
        swaps.record_swap(plan("a")),
        swaps.record_swap(plan("b", returns=True)),
        swaps.record_swap(plan("c")),
    )
    for intent, state in ((first, "done"), (second, "done"), (third, "running")):
        swaps.move(intent.id, state)
    assert [each.plan["name"] for each in swaps.unfinished()] == ["c"]
    ended, done = swaps.last_ended(), swaps.last_done()
    assert ended is not None
    assert done is not None
    assert (ended.id, done.id) == (second.id, first.id)
    assert "map" not in ended.plan
    assert swaps.swap(second.id).plan["map"] == {"large": True}


def test_steps_keep_their_order_and_epochs_are_never_used_twice(
    store: StateStore, swaps: SwapStore
) -> None:
    intent = swaps.record_swap(plan("a"))
    store.record_placement_map(3, "d3", "contiguous", b"{}")
    assert swaps.next_epoch() == 4
    first = swaps.begin_step(intent.id, 1, 6, "stage", "spark-1")
    second = swaps.begin_step(intent.id, 1, 6, "commit", "spark-1")
    swaps.end_step(intent.id, first, 1500, copies=3, size_bytes=90)
    steps = swaps.steps(intent.id)
    assert [(step.number, step.kind, step.took_us) for step in steps] == [
        (first, "stage", 1500), (second, "commit", None),
    ]  # fmt: skip
    assert (steps[0].copies, steps[0].size_bytes) == (3, 90)
    assert swaps.next_epoch() == 7, "an epoch that did not turn is not given again"
    with pytest.raises(StoreError):
        swaps.begin_step(intent.id, 1, 6, "dance", "spark-1")


def test_a_turn_is_the_newest_map_and_says_what_was_planned(
    store: StateStore, swaps: SwapStore
) -> None:
    intent = swaps.record_swap(plan("a"))
    store.record_placement_map(1, "d1", "contiguous", b"{}")
    swaps.record_turn(intent.id, 2, "d2", "all-hbm", b'{"a": 1}', "d1")
    newest = store.placement_map()
    assert newest is not None
    assert (newest.epoch, newest.digest, newest.policy) == (2, "d2", "all-hbm")
    assert (swaps.planned_digest(2), swaps.planned_digest(1)) == ("d1", None)
    assert [swaps.name_of(epoch) for epoch in (1, 2, 3)] == ["contiguous", "all-hbm", None]
    with pytest.raises(StoreError):
        swaps.record_turn(intent.id, 2, "d3", "all-rtx", b"{}", "d1")


def test_effects_and_the_newest_event(swaps: SwapStore) -> None:
    intent = swaps.record_swap(plan("a"))
    before = SwapEffect("hbm", "before", 0, None, None, "measured")
    during = SwapEffect("hbm", "during", 9, 1.5, 2.5, "measured")
    swaps.record_effects(intent.id, [before])
    swaps.record_effects(intent.id, [before, during])
    assert sorted(swaps.effects(intent.id), key=lambda e: e.moment) == [before, during]
    assert swaps.reason(intent.id) is None
    swaps.note("it failed", intent=intent.id)
    swaps.note("another's", intent="other")
    assert swaps.reason(intent.id) == "it failed"


def test_a_database_of_before_swaps_is_brought_up_to_date(home: Path) -> None:
    with StateStore.open_as_writer(home, holder="test") as opened:
        opened.record_placement_map(1, "d1", "contiguous", b"{}")
        path = opened.path
    with sqlite3.connect(path) as old:
        for table in ("swap_step", "swap_effect"):
            old.execute(f"DROP TABLE {table}")
        for column in ("sparks", "intent", "planned_digest"):
            old.execute(f"ALTER TABLE placement_map DROP COLUMN {column}")
        old.execute("DELETE FROM _sqlite_migrations WHERE name IN ('swaps', 'slicing')")
        old.execute("PRAGMA user_version = 1")
    old.close()
    with StateStore.open_as_writer(home, holder="test") as opened:
        assert opened.migrations == ("swaps", "slicing")
        assert SwapStore(opened).planned_digest(1) is None
        assert SwapStore(opened).next_epoch() == 2
