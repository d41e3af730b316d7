"""Frames that are kept: what is read is what was written, coarser with age, bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from k3d.errors import ConfigError, NotFound, StoreError
from k3d.store import frame_log, telemetry
from k3d.store.frame import Attention, Frame
from k3d.store.frame_history import FrameHistory
from k3d.store.frame_log import RESOLUTIONS, FrameLog
from k3d.store.frame_pack import columns_of, frame_of, pack, unpack
from k3d.store.telemetry import TelemetryStore
from tests.store.drawn_frames import START_MS, draw_frame


@pytest.fixture
def store(home: Path) -> Iterator[TelemetryStore]:
    opened = TelemetryStore.open_as_writer(home)
    yield opened
    opened.close()


def drawn(seed: int, count: int, **size: int) -> list[Frame]:
    rng = random.Random(seed)
    return [draw_frame(rng, number, **size) for number in range(count)]


def appended(store: TelemetryStore, frames: list[Frame]) -> FrameLog:
    log = FrameLog(store)
    for frame in frames:
        log.append(frame)
    return log


def kept(store: TelemetryStore) -> dict[int, int]:
    return dict(store.rows("SELECT span_s, count(*) FROM frame GROUP BY span_s"))


def test_a_packed_frame_is_the_frame_with_any_base(seed: int) -> None:
    frames = drawn(seed, 3)
    bare = msgspec.structs.replace(frames[2], lanes=(), nodes=(), attention=())
    half = msgspec.structs.replace(
        frames[1],
        nodes=tuple(
            msgspec.structs.replace(node, sensors=None) if at % 2 else node
            for at, node in enumerate(frames[1].nodes)
        ),
        attention=(Attention(severity="note", subject="x", sentence="y"),),
    )
    for frame in (frames[0], half, bare):
        columns = columns_of(frame)
        assert frame_of(unpack(pack(columns))) == frame
        for other in (frames[1], half, bare):
            base = columns_of(other)
            assert frame_of(unpack(pack(columns, base), base)) == frame


def test_a_body_that_is_damaged_is_one_sentence() -> None:
    for body in (b"", b"not deflated", pack({"nodes": 1})):
        with pytest.raises(StoreError, match="a recorded frame cannot be read"):
            frame_of(unpack(body))


def test_every_second_is_read_as_it_was_written(
    home: Path, store: TelemetryStore, seed: int
) -> None:
    frames = drawn(seed, 40)
    appended(store, frames)
    with FrameHistory.open(home) as history:
        assert history.span() == (frames[0].at_ms, frames[-1].at_ms)
        assert history.between(frames[0].at_ms, frames[-1].at_ms) == frames
        assert history.between(frames[3].at_ms + 1, frames[9].at_ms) == frames[4:10]
        for number in (0, 17, 39):
            assert history.at(frames[number].at_ms) == frames[number]
            assert history.at(frames[number].at_ms + 999) == frames[number]
        assert history.at(frames[0].at_ms - 1) is None
        assert history.after(frames[4].at_ms) == frames[5]
        assert history.after(frames[-1].at_ms) is None


def test_a_coarser_frame_keeps_the_extremes_and_the_means(
    home: Path, store: TelemetryStore, seed: int
) -> None:
    frames = drawn(seed, 121)
    bad = frames[65]
    frames[65] = msgspec.structs.replace(
        bad,
        state="degraded",
        reason="spark-2 is late",
        token_p99_us=9e6,
        decode_tokens_per_s=None,
        attention=(Attention(severity="alert", subject="spark-2", sentence="late", kind="node"),),
    )
    appended(store, frames)
    with FrameHistory.open(home) as history:
        coarse = history.between(frames[0].at_ms, frames[-1].at_ms, most=13)
    assert len(coarse) == 13
    (minute,) = [each for each in coarse if each.state == "degraded"]
    of_it = [each for each in frames if minute.at_ms - 10_000 < each.at_ms <= minute.at_ms]
    assert len(of_it) == 10
    assert frames[65] in of_it
    assert (minute.reason, minute.token_p99_us) == ("spark-2 is late", 9e6)
    assert [each.subject for each in minute.attention] == ["spark-2"]
    assert minute.interval_s == pytest.approx(10.0)
    rates = [each.decode_tokens_per_s or 0.0 for each in of_it]
    assert minute.decode_tokens_per_s == pytest.approx(sum(rates) / 10, rel=1e-4)
    hottest = max(each.nodes[3].sensors.temperature_c for each in of_it if each.nodes[3].sensors)  # type: ignore[type-var]
    sensors = minute.nodes[3].sensors
    assert sensors is not None
    assert sensors.temperature_c == hottest
    assert minute.nodes[3].hops == sum(each.nodes[3].hops for each in of_it)
    assert minute.decode_tokens == of_it[-1].decode_tokens


def test_old_seconds_end_and_their_minutes_stay(
    home: Path, store: TelemetryStore, seed: int
) -> None:
    frames = drawn(seed, 100, nodes=2)
    log = appended(store, frames)
    later = frames[-1].at_ms + RESOLUTIONS[0].keep_s * 1000 - 20_000
    log.prune(later)
    assert kept(store)[1] == 21
    with FrameHistory.open(home) as history:
        assert history.span() is not None
        old = history.at(frames[50].at_ms)
        assert old is not None
        assert frames[50].at_ms - 10_000 <= old.at_ms <= frames[50].at_ms
        assert history.between(frames[0].at_ms, frames[-1].at_ms)[0].interval_s > 1
    log.prune(frames[-1].at_ms + 31 * 86_400_000)
    assert kept(store) == {}


def test_a_resolution_stays_within_its_bytes(
    home: Path, store: TelemetryStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    small = tuple(replace(each, most_bytes=64 * 1024) for each in RESOLUTIONS)
    monkeypatch.setattr(frame_log, "RESOLUTIONS", small)
    frames = drawn(seed, 300, nodes=3)
    appended(store, frames)
    for span, size in store.rows("SELECT span_s, sum(length(body)) FROM frame GROUP BY span_s"):
        assert size <= 64 * 1024, span
    with FrameHistory.open(home) as history:
        assert history.at(frames[-1].at_ms) == frames[-1]
        span = history.span()
        assert span is not None
        assert span[0] < frames[20].at_ms, "coarse frames reach back"
        assert kept(store)[1] < 300


def test_who_was_killed_goes_on_where_it_was(home: Path, seed: int) -> None:
    frames = drawn(seed, 200, nodes=2)
    whole, broken = home / "whole", home / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    store = TelemetryStore.open_as_writer(whole)
    appended(store, frames)
    store.close()
    for first in range(0, 200, 50):
        store = TelemetryStore.open_as_writer(broken)
        appended(store, frames[first : first + 50])
        store.close()  # nothing is flushed: as after a kill
    with FrameHistory.open(whole) as undisturbed, FrameHistory.open(broken) as history:
        span = (frames[0].at_ms, frames[-1].at_ms)
        assert history.between(*span) == undisturbed.between(*span)
        ours, theirs = (each.between(*span, most=3) for each in (history, undisturbed))
        assert [each.at_ms // 300_000 for each in ours] == [
            each.at_ms // 300_000 for each in theirs
        ]
        lost_s = sum(each.interval_s for each in theirs) - sum(each.interval_s for each in ours)
        assert 0 <= lost_s <= 4 * 10


def test_a_full_file_gives_up_its_older_half_and_a_full_disk_one_frame(
    home: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(telemetry, "LARGEST_BYTES", 60 * telemetry.PAGE_BYTES)
    store = TelemetryStore.open_as_writer(home)
    frames = drawn(seed, 400, nodes=5)
    log = appended(store, frames)
    assert 0 < kept(store)[1] < 400
    assert (home / "telemetry.db").stat().st_size <= 61 * telemetry.PAGE_BYTES
    with FrameHistory.open(home) as history:
        assert history.at(frames[-1].at_ms) == frames[-1]
        store.rows("PRAGMA max_page_count = 1")
        big = drawn(seed, 1, nodes=8000)[0]
        with pytest.raises(StoreError, match="the disk is full"):
            log.append(big)
        assert history.at(frames[-1].at_ms + 10**6) == frames[-1]
    store.close()


def test_a_file_of_the_first_schema_is_brought_up_to_date_and_a_newer_one_refused(
    home: Path, seed: int
) -> None:
    with pytest.raises(NotFound):
        FrameHistory.open(home)
    store = TelemetryStore.open_as_writer(home)
    for name in ("frame", "frame_base", "expert_use"):
        store.rows(f"DROP TABLE {name}")
    store.rows("PRAGMA user_version = 1")
    store.close()
    with pytest.raises(NotFound, match="before frames were recorded"):
        FrameHistory.open(home)
    store = TelemetryStore.open_as_writer(home)
    frames = drawn(seed, 2)
    appended(store, frames)
    with FrameHistory.open(home) as history:
        assert history.between(START_MS, frames[-1].at_ms) == frames
    store.rows("PRAGMA user_version = 9")
    store.close()
    with pytest.raises(ConfigError, match="newer k3pod"):
        FrameHistory.open(home)
