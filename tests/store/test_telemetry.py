"""telemetry.db: rollups, retention, bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from k3d.errors import ConfigError, NotFound, StoreError
from k3d.store import telemetry
from k3d.store.database import APPLICATION_ID, open_for_writing, write_transaction
from k3d.store.paths import telemetry_path
from k3d.store.telemetry import (
    RETENTION,
    HopRollup,
    TelemetryStore,
    TokenRollup,
    read_hops,
    read_tokens,
)

HOP = HopRollup(0, "spark", "spark-1", 10, 1_000, 90, 300, 12, 700)
TOKENS = TokenRollup(0, "decode", 30, 2_000_000, 1)


@pytest.fixture
def store(home: Path):
    opened = TelemetryStore.open_as_writer(home)
    yield opened
    opened.close()


def test_what_is_recorded_is_read(home: Path, store: TelemetryStore) -> None:
    store.record(hops=[HOP, replace(HOP, node="spark-2")], tokens=[TOKENS])
    assert read_hops(home) == [HOP, replace(HOP, node="spark-2")]
    assert read_tokens(home) == [TOKENS]
    assert read_hops(home, since_s=1) == []


def test_two_rollups_of_one_bucket_are_merged(home: Path, store: TelemetryStore) -> None:
    store.record(hops=[HOP])
    store.record(hops=[replace(HOP, count=30, sum_us=6_000, p50_us=190, p99_us=250)])
    merged = read_hops(home)[0]
    assert (merged.count, merged.sum_us, merged.p50_us, merged.p99_us) == (40, 7_000, 165, 300)


@pytest.mark.parametrize("known_first", [True, False])
def test_percentiles_that_are_not_known_stay_so_and_count_for_nothing(
    home: Path, store: TelemetryStore, known_first: bool
) -> None:
    unknown = replace(HOP, count=30, p50_us=None, p99_us=None)
    store.record(hops=[replace(unknown, tier="hbm")])
    for hop in (HOP, unknown) if known_first else (unknown, HOP):
        store.record(hops=[hop])
    store.record(hops=[replace(hop, bucket_s=10) for hop in (unknown, replace(HOP, tier="rtx"))])
    read = {(hop.bucket_s, hop.tier): hop for hop in read_hops(home)}
    assert (read[0, "hbm"].p50_us, read[0, "hbm"].p99_us) == (None, None)
    assert (read[0, "spark"].count, read[0, "spark"].p50_us, read[0, "spark"].p99_us) == (
        40, 90, 300,
    )  # fmt: skip
    store.roll_up(now_s=7_200)
    read = {(hop.bucket_s, hop.tier): hop for hop in read_hops(home)}
    assert (read[0, "spark"].p50_us, read[0, "hbm"].p50_us, read[0, "rtx"].p50_us) == (90, None, 90)


def test_a_file_of_schema_1_is_brought_up_to_date(home: Path) -> None:
    """There 0 stood for a percentile that was not known, and there were no frames."""
    path = telemetry_path(home)
    connection = open_for_writing(path, synchronous="NORMAL")
    with write_transaction(connection, path):
        connection.execute(
            "CREATE TABLE hop (span_s INTEGER NOT NULL, bucket_s INTEGER NOT NULL, "
            "tier TEXT NOT NULL, node TEXT NOT NULL, count INTEGER NOT NULL, "
            "sum_us INTEGER NOT NULL, p50_us INTEGER NOT NULL, p99_us INTEGER NOT NULL, "
            "rows INTEGER NOT NULL, compute_us INTEGER NOT NULL, "
            "PRIMARY KEY (span_s, bucket_s, tier, node)) STRICT, WITHOUT ROWID"
        )
        for tier, p50_us in (("spark", 90), ("hbm", 0)):
            connection.execute(
                "INSERT INTO hop VALUES (10, 0, ?, 'spark-1', 10, 1000, ?, 0, 12, 700)",
                (tier, p50_us),
            )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    for _ in range(2):
        TelemetryStore.open_as_writer(home).close()
    read = {hop.tier: (hop.count, hop.p50_us, hop.p99_us) for hop in read_hops(home)}
    assert read == {"spark": (10, 90, None), "hbm": (10, None, None)}


def test_age_makes_buckets_coarser_and_loses_no_count(home: Path, store: TelemetryStore) -> None:
    fine = RETENTION[0].span_s
    buckets = [fine * n for n in range(720)]  # two hours
    store.record(hops=[replace(HOP, bucket_s=bucket) for bucket in buckets])
    store.record(tokens=[replace(TOKENS, bucket_s=bucket) for bucket in buckets])
    store.roll_up(now_s=7_200)
    hops, tokens = read_hops(home), read_tokens(home)
    assert len(hops) == 360 + 60
    assert sum(hop.count for hop in hops) == 7_200
    assert sum(token.tokens for token in tokens) == 720 * 30
    assert hops[0].sum_us == 6_000
    store.roll_up(now_s=7_200)
    assert read_hops(home) == hops


def test_the_oldest_end(home: Path, store: TelemetryStore) -> None:
    store.record(hops=[HOP], tokens=[TOKENS])
    month = RETENTION[-1].keep_s
    store.roll_up(now_s=86_400 * 2)
    assert len(read_hops(home)) == 1
    store.roll_up(now_s=month + 86_400)
    assert read_hops(home) == []
    assert read_tokens(home) == []


def test_a_file_at_its_limit_drops_its_oldest(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "LARGEST_BYTES", 40 * telemetry.PAGE_BYTES)
    store = TelemetryStore.open_as_writer(home)
    for start in range(0, 20_000, 100):
        store.record(hops=[replace(HOP, bucket_s=10 * n) for n in range(start, start + 100)])
    store.close()
    kept = [hop.bucket_s for hop in read_hops(home)]
    assert kept[-1] == 199_990
    assert 0 < len(kept) < 20_000
    assert (home / "telemetry.db").stat().st_size <= 41 * telemetry.PAGE_BYTES


def test_a_full_disk_is_one_sentence_and_loses_only_the_new(
    home: Path, store: TelemetryStore
) -> None:
    store.record(hops=[HOP])
    store._connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreError, match="the disk is full"):
        store.record(hops=[replace(HOP, bucket_s=10, node=f"spark-{n}") for n in range(9_000)])
    store.close()


def test_a_newer_file_and_no_file(home: Path) -> None:
    with pytest.raises(NotFound):
        read_hops(home)
    store = TelemetryStore.open_as_writer(home)
    store._connection.execute("PRAGMA user_version = 9")
    store.close()
    with pytest.raises(ConfigError, match="newer k3pod"):
        TelemetryStore.open_as_writer(home)
