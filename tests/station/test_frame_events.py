"""What needs attention, and which events that makes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from k3d.station.frame_attention import AttentionWatch
from k3d.station.frame_events import SETTLE_S, FrameEvents
from k3d.store.frame import Accelerator, Attention, Frame, NodeFrame, Sensors, SwapFrame

GIB = 2**30


def frame(uptime_s: float = 100.0, **fields: Any) -> Frame:
    return Frame(
        at_ms=int(1000 * uptime_s), sequence=0, interval_s=1.0, pod="tiny", state="healthy",
        uptime_s=uptime_s, **fields,
    )  # fmt: skip


def node(name: str = "spark-1", **fields: Any) -> NodeFrame:
    known = {"state": "healthy", "link": "ready", **fields}
    return NodeFrame(name=name, role="station" if name == "station" else "spark", **known)


def sensed(**fields: Any) -> NodeFrame:
    return node(sensors=Sensors(**{"age_s": 0.5, **fields}))


def look(one: Frame, joins: dict[str, int] | None = None, alive: bool = True) -> list[Attention]:
    return AttentionWatch().look(one, joins or {}, engine_alive=alive)


def test_a_healthy_pod_needs_no_attention() -> None:
    well = sensed(
        temperature_c=60.0,
        temperature_limit_c=100.0,
        memory_used_bytes=8 * GIB,
        memory_bytes=16 * GIB,
        disk_free_bytes=90 * GIB,
        accelerators=(Accelerator(name="GB10", temperature_c=70.0, temperature_limit_c=None),),
    )
    assert look(frame(nodes=(node("station"), well)), {"spark-1": 1}) == []


@pytest.mark.parametrize(
    ("one", "severity", "kind", "words", "command"),
    [
        (
            frame(nodes=(node(state="down", link="lost", reason="spark-1 ended"),)),
            "alert", "node", "spark-1 ended", "k3ctl pod up",
        ),
        (
            frame(nodes=(node(state="down", link="refused", reason="another secret"),)),
            "alert", "node", "another secret", "k3ctl logs spark-1",
        ),
        (
            frame(nodes=(node(state="degraded", reason="spark-1 is late"),)),
            "warning", "node", "late", "k3ctl logs spark-1",
        ),
        (
            frame(nodes=(sensed(temperature_c=96.0, temperature_limit_c=100.0),)),
            "warning", "heat of its hottest sensor", "96 C", "k3ctl plot sensors --since 1h",
        ),
        (
            frame(nodes=(sensed(temperature_c=101.0, temperature_limit_c=100.0),)),
            "alert", "heat of its hottest sensor", "101 C", "k3ctl plot sensors --since 1h",
        ),
        (
            frame(nodes=(sensed(memory_used_bytes=97 * GIB, memory_bytes=100 * GIB),)),
            "warning", "memory", "3,072 MiB", "k3ctl pod status",
        ),
        (
            frame(nodes=(sensed(disk_free_bytes=GIB),)),
            "warning", "disk", "1,024 MiB", "k3ctl bank gc --dry-run",
        ),
        (
            frame(nodes=(sensed(disk_free_bytes=0),)),
            "alert", "disk", "0 MiB", "k3ctl bank gc --dry-run",
        ),
        (
            frame(nodes=(sensed(age_s=40.0),)),
            "warning", "sensors", "40 s ago", "k3ctl logs spark-1",
        ),
        (
            frame(synthetic_acceptance=2.5),
            "alert", "synthetic", "not the model's", "k3ctl pod down; k3ctl pod up",
        ),
        (
            frame(swap=SwapFrame(
                intent="a", to="fastest-first", phase="staging", wave=1, waves=2, copied_bytes=0,
                size_bytes=9, paused="hops are slow",
            )),
            "note", "swap", "hops are slow", "k3ctl placement status",
        ),
    ],
)  # fmt: skip
def test_each_trouble_is_named_with_a_command(
    one: Frame, severity: str, kind: str, words: str, command: str
) -> None:
    (found,) = look(one)
    assert (found.severity, found.kind, found.command) == (severity, kind, command)
    assert words in found.sentence


def test_throttling_is_told_by_its_reason() -> None:
    device = Accelerator(name="GB10", throttled=("application clocks", "power cap"))
    locked = Accelerator(name="H200", throttled=("application clocks",))
    hot = Accelerator(name="RTX", throttled=("hardware thermal slowdown",))
    found = look(frame(nodes=(sensed(accelerators=(device, locked, hot)),)))
    assert [each.severity for each in found] == ["warning", "note"]
    assert "RTX of spark-1 is held back: hardware thermal slowdown" in found[0].sentence
    assert found[1].sentence == "GB10 of spark-1 is held back: power cap"


def test_an_engine_that_ended_is_the_first_line() -> None:
    lost = node(state="down", link="lost", reason="gone")
    found = look(frame(nodes=(node("station"), lost)), alive=False)
    assert [each.kind for each in found] == ["engine", "node"]


def test_requests_that_failed_or_were_refused_are_told_for_a_minute() -> None:
    watch = AttentionWatch()

    def kinds(at_s: float, failed: int, refused: int) -> list[str]:
        found = watch.look(frame(at_s, failed=failed, refused=refused), {}, engine_alive=True)
        return [each.kind for each in found]

    assert kinds(0, 5, 7) == [], "those before the first frame"
    assert kinds(10, 6, 7) == ["failed"]
    assert kinds(11, 6, 9) == ["failed", "refused"]
    assert kinds(70.5, 6, 9) == ["refused"]
    assert kinds(80, 6, 9) == []


def test_a_link_that_flaps_is_told_and_one_that_joins_once_is_not() -> None:
    watch = AttentionWatch()

    def kinds(at_s: float, joins: int) -> list[str]:
        found = watch.look(frame(at_s), {"spark-1": joins}, engine_alive=True)
        return [each.kind for each in found]

    assert kinds(0, 0) == []
    assert [kinds(at, joins) for at, joins in ((1, 1), (20, 2), (40, 3))] == [[], [], []]
    assert kinds(60, 4) == ["link"]
    assert kinds(600, 4) == []


def told(
    events: FrameEvents, at_s: float, *attention: Attention, state: Any = "healthy"
) -> list[tuple[str, str]]:
    nodes = (node("station"), node())
    one = msgspec.structs.replace(frame(at_s, nodes=nodes, attention=attention), state=state)
    found = events.look(one)
    assert all(each.node in (None, "station", "spark-1") for each in found)
    return [(each.kind, each.message) for each in found]


def down(sentence: str = "spark-1 is lost") -> Attention:
    return Attention(severity="alert", subject="spark-1", sentence=sentence, kind="node")


def test_a_node_that_is_lost_and_comes_back_is_two_events() -> None:
    events = FrameEvents()
    assert told(events, 100) == []
    assert told(events, 101, down()) == [("node", "spark-1 is lost")]
    assert told(events, 102, down("spark-1 is lost: no route")) == []
    assert told(events, 101 + SETTLE_S) == [("node", "spark-1 is healthy again")]
    assert told(events, 200) == []


def test_a_link_that_flaps_is_not_an_event_a_second() -> None:
    events = FrameEvents()
    found = []
    for second in range(100, 200):
        found += told(events, second, *([down()] if second % 2 else []))
    assert 2 <= len(found) <= 100 / SETTLE_S + 1


def test_a_station_that_starts_is_given_time_for_its_sparks() -> None:
    events = FrameEvents()
    connecting = down("spark-1 is connecting")
    assert told(events, 1, connecting, state="degraded") == []
    assert told(events, 5) == []
    assert told(events, 6, down("lost already"), state="degraded") == [("node", "lost already")]
    slow = FrameEvents()
    assert told(slow, 9, connecting, state="degraded") == []
    assert told(slow, 11, connecting, state="degraded") == [("node", "spark-1 is connecting")]


def test_a_note_of_others_is_no_event_here() -> None:
    drift = Attention(severity="warning", subject="tiny", sentence="drifted", kind="drift")
    assert told(FrameEvents(), 100, drift) == []


def test_requests_that_failed_are_counted_since_they_were_told_last() -> None:
    events = FrameEvents()

    def look(at_s: float, failed: int, reason: str | None = None) -> list[str]:
        one = msgspec.structs.replace(frame(at_s, failed=failed), reason=reason)
        return [each.message for each in events.look(one)]

    assert look(100, 3) == [], "of before"
    assert look(101, 5, "spark-1 is lost") == ["requests that failed: 2: spark-1 is lost"]
    assert look(102, 6) == []
    assert look(101 + SETTLE_S, 8) == ["requests that failed: 3"]
    assert look(200, 8) == []


def test_a_gpu_at_its_limit_is_not_an_event_every_few_seconds() -> None:
    events = FrameEvents()
    hot = Attention(severity="warning", subject="spark-1", sentence="hot", kind="heat of GB10")
    cap = Attention(severity="note", subject="spark-1", sentence="cap", kind="throttle of GB10")
    found = []
    for second in range(100, 700):
        found += told(events, second, *([hot, cap] if second % 3 else []))
    assert found[0] == ("heat", "hot")
    assert len(found) <= 3
