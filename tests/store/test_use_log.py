"""How often experts were chosen, kept by the half hour."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3d.errors import ConfigError, NotFound, StoreError
from k3d.store import use_log
from k3d.store.telemetry import TelemetryStore
from k3d.store.use_log import (
    EVERY_S,
    KEEP_S,
    LATE_S,
    ExpertUses,
    read_uses,
    record_uses,
    uses_at,
)  # fmt: skip


@pytest.fixture
def store(home: Path) -> Iterator[TelemetryStore]:
    opened = TelemetryStore.open_as_writer(home)
    yield opened
    opened.close()


def drawn(seed: int, number: int, layers: int = 3, experts: int = 8) -> ExpertUses:
    rng = random.Random(seed + number)
    counts = tuple(int(rng.paretovariate(0.5)) % 2**32 for _ in range(layers * experts))
    return ExpertUses(number * EVERY_S * 1000, 1 + number // 2, 9, layers, experts, counts)


def test_what_is_recorded_is_read(home: Path, store: TelemetryStore, seed: int) -> None:
    with pytest.raises(NotFound):
        read_uses(home / "nowhere")
    assert read_uses(home) == []
    uses = [drawn(seed, number) for number in range(1, 5)]
    for each in uses:
        record_uses(store, each)
    assert read_uses(home) == uses
    assert read_uses(home, since_ms=uses[1].at_ms) == uses[2:]


def test_the_oldest_end_by_age_and_by_bytes(
    home: Path, store: TelemetryStore, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_uses(store, drawn(seed, 0))
    record_uses(store, drawn(seed, KEEP_S // EVERY_S + 1))
    assert [each.at_ms > 0 for each in read_uses(home)] == [True]
    monkeypatch.setattr(use_log, "MOST_BYTES", 400)
    for number in range(KEEP_S // EVERY_S, KEEP_S // EVERY_S + 50):
        record_uses(store, drawn(seed, number))
    kept = read_uses(home)
    assert 1 <= len(kept) < 20
    assert kept[-1] == drawn(seed, KEEP_S // EVERY_S + 49)


def test_a_damaged_stretch_and_a_newer_file_are_one_sentence(
    home: Path, store: TelemetryStore, seed: int
) -> None:
    record_uses(store, drawn(seed, 1))
    store.rows("UPDATE expert_use SET layers = 4")
    with pytest.raises(StoreError, match="96 bytes for 32 experts"):
        read_uses(home)
    store.rows("UPDATE expert_use SET body = x'00'")
    with pytest.raises(StoreError, match="cannot be read"):
        read_uses(home)
    store.rows("PRAGMA user_version = 9")
    with pytest.raises(ConfigError, match="newer k3pod"):
        read_uses(home)


def test_a_moment_lies_in_the_stretch_that_ended_after_it(
    home: Path, store: TelemetryStore, seed: int
) -> None:
    assert uses_at(home, 0) is None
    first, later = drawn(seed, 1), drawn(seed, 9)
    record_uses(store, first)
    record_uses(store, later)
    late_ms = (EVERY_S + LATE_S) * 1000
    assert uses_at(home, 0) == first
    assert uses_at(home, first.at_ms) == first
    assert uses_at(home, first.at_ms + 1) == first, "a stretch that far on does not begin so early"
    assert uses_at(home, later.at_ms - late_ms) == later
    assert uses_at(home, later.at_ms + 1) == later
    assert uses_at(home, -late_ms) is None
