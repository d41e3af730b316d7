"""Frames as k3ctl reads them: of a Station that runs, hangs, ends and comes back; and recorded."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3ctl.client.frames import LiveFrames, RecordedFrames
from k3d.errors import FabricError, K3Error, NotFound, StoreError, TimedOut
from k3d.store.frame import Frame, encode
from k3d.store.frame_log import FrameLog
from k3d.store.telemetry import TelemetryStore
from tests.ctl.fake_daemons import FakeDaemon, write_script
from tests.store.drawn_frames import START_MS, draw_frame


def drawn(number: int, seed: int) -> Frame:
    return draw_frame(random.Random(seed + number), number)


def answer(home: Path, frame: Frame, **others: object) -> None:
    answers = {"/frame": json.loads(encode(frame)), **others}
    write_script(home, "station", answers=answers)


@pytest.fixture
def live(home: Path) -> Iterator[LiveFrames]:
    frames = LiveFrames(home, timeout_s=0.5)
    yield frames
    frames.close()


def test_the_newest_frame_of_a_station(
    home: Path, station: FakeDaemon, live: LiveFrames, seed: int
) -> None:
    for number in range(3):
        answer(home, drawn(number, seed))
        assert live.latest() == drawn(number, seed)


def test_no_station_a_silent_one_and_one_that_comes_back(
    home: Path, station: FakeDaemon, live: LiveFrames, seed: int
) -> None:
    answer(home, drawn(0, seed))
    assert live.latest().sequence == 0
    write_script(home, "station", silent=True)
    with pytest.raises(TimedOut):
        live.latest()
    station.stop()
    with pytest.raises(FabricError, match="no Station runs"):
        live.latest()
    again = FakeDaemon(home, "station", "station")
    again.start()
    try:
        answer(home, drawn(1, seed))
        assert live.latest().sequence == 1, "it has another port now"
    finally:
        again.stop()


def test_an_older_station_has_no_frames_and_a_strange_one_no_sound_ones(
    home: Path, station: FakeDaemon, live: LiveFrames
) -> None:
    with pytest.raises(K3Error, match="404"):
        live.latest()
    write_script(home, "station", answers={"/frame": {"schema": "k3d.frame/1", "at_ms": "soon"}})
    with pytest.raises(StoreError, match="a frame cannot be read"):
        live.latest()


def test_lanes_events_and_experts_come_from_their_routes(
    home: Path, station: FakeDaemon, live: LiveFrames, seed: int
) -> None:
    lane = {"id": "chat-1", "phase": "decode"}
    event = {"id": 7, "ts_ms": 1, "node": None, "kind": "pod", "message": "the Station started"}
    answer(
        home,
        drawn(0, seed),
        **{
            "/lanes": {"schema": "k3d.lanes/1", "lanes": [lane]},
            "/events": {"schema": "k3d.events/1", "events": [event]},
            "/experts": {"schema": "k3d.experts/1", "uses": [[1, 2]]},
            "/lanes/cancel": {"schema": "k3d.lanes-cancel/1", "id": "chat-1"},
        },
    )
    assert live.lanes() == [lane]
    assert live.events(since_id=3) == [event]
    assert live.expert_use()["uses"] == [[1, 2]]
    assert live.cancel("chat-1")["id"] == "chat-1"
    assert station.requests == [{"id": "chat-1"}]


def test_recorded_frames_need_no_daemon(home: Path, seed: int) -> None:
    with pytest.raises(NotFound):
        RecordedFrames(home)
    store = TelemetryStore.open_as_writer(home)
    log = FrameLog(store)
    recorded = RecordedFrames(home)
    assert recorded.span() is None
    with pytest.raises(NotFound, match="no frame was recorded"):
        recorded.latest()
    frames = [drawn(number, seed) for number in range(30)]
    for frame in frames:
        log.append(frame)
    assert recorded.latest() == frames[-1], "a reader sees what was written since"
    assert recorded.between(START_MS, frames[-1].at_ms) == frames
    assert recorded.at(frames[4].at_ms + 5) == frames[4]
    store.close()
    assert recorded.after(frames[4].at_ms) == frames[5]
    recorded.close()


def test_frames_import_neither_httpx_nor_torch_nor_numpy() -> None:
    script = (
        "import sys; import k3ctl.client.frames; "
        "print([m for m in ('httpx', 'torch', 'numpy', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
