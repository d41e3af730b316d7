"""A pod's recorded hours, made up: frames in memory, roll-ups and maps in a home."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from k3d.store.frame import (
    Accelerator,
    Attention,
    Frame,
    LaneFrame,
    NodeFrame,
    Sensors,
    TierFrame,
)
from k3d.store.frame_log import FrameLog
from k3d.store.state import StateStore
from k3d.store.telemetry import HopRollup, TelemetryStore, TokenRollup

TIERS = ("hbm", "rtx", "grace", "spark")
EXPERTS = (154, 77, 230, 307)
SHARES = (0.2, 0.1, 0.29, 0.41)


class FakeRecording:
    """Frames of a list, oldest first."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = list(frames)

    def span(self) -> tuple[int, int] | None:
        return (self.frames[0].at_ms, self.frames[-1].at_ms) if self.frames else None

    def at(self, at_ms: int) -> Frame | None:
        return next((frame for frame in reversed(self.frames) if frame.at_ms <= at_ms), None)

    def after(self, at_ms: int) -> Frame | None:
        return next((frame for frame in self.frames if frame.at_ms > at_ms), None)

    def between(self, first_ms: int, last_ms: int, most: int) -> list[Frame]:
        inside = [frame for frame in self.frames if first_ms <= frame.at_ms <= last_ms]
        return inside[:: max(1, -(-len(inside) // most))]

    def close(self) -> None:
        """Nothing is held."""


def station(at_ms: int, **changed: object) -> NodeFrame:
    wave = math.sin(at_ms / 900_000)
    sensors = Sensors(
        age_s=0.4,
        power_w=310.0 + 60 * wave,
        temperature_c=61.0 + 4 * wave,
        busy_share=0.42 + 0.1 * wave,
        memory_used_bytes=93 * 2**30,
        memory_bytes=128 * 2**30,
        accelerators=(Accelerator(name="GB300", power_w=240.0 + 50 * wave, clock_mhz=1_905.0),),
        missing={"clock_mhz": "this machine reports no clock"},
        simulated=True,
    )
    figures = {"slots_used": 461, "slots": 2_304, "rss_bytes": 414_400_512, "sensors": sensors}
    return NodeFrame(
        **{  # type: ignore[arg-type]
            "name": "station",
            "role": "station",
            "state": "healthy",
            "pid": 4_711,
            "progress_age_s": 0.2,
            "hop_p50_us": 281.0,
            "hop_p99_us": 4_310.0,
            "hops": 2_302,
            **figures,
            **changed,
        }
    )


def spark(number: int, at_ms: int, **changed: object) -> NodeFrame:
    sensors = Sensors(age_s=1.1, missing={"power_w": "no sensor", "clock_mhz": "no sensor"})
    return NodeFrame(
        **{  # type: ignore[arg-type]
            "name": f"spark-{number}",
            "role": "spark",
            "state": "healthy",
            "link": "up",
            "slice": f"{number}/2",
            "slots_used": 307,
            "slots": 768,
            "sensors": sensors,
            "rss_bytes": 248_000_000,
            "rtt_us": 140.0,
            "hop_p50_us": 3_040.0 + number,
            "hop_p99_us": 9_210.0 + number,
            "compute_us": 1_450.0,
            "hops": 2_717,
            "progress_age_s": 0.1 * number,
            "pid": 4_800 + number,
            **changed,
        }
    )


def tiers(at_ms: int) -> tuple[TierFrame, ...]:
    turn = 0.05 * math.sin(at_ms / 700_000)
    return tuple(
        TierFrame(
            name=name,
            experts=EXPERTS[number],
            slots=768,
            hit_share=SHARES[number] + (turn if number in (0,) else -turn if number == 3 else 0),
            hop_p50_us=295.0 + 900 * (number == 3),
            hop_p99_us=4_300.0 + 100 * number,
            hops=1_846 + number,
            busy_share=0.11 + 0.03 * number,
            simulated=True,
        )
        for number, name in enumerate(TIERS)
    )


def frame(at_ms: int, **changed: object) -> Frame:
    """A frame of a pod of a Station and two sparks at work."""
    lane = LaneFrame(
        id="req-7",
        source="v1/chat/completions",
        phase="decode",
        age_s=12.4,
        prompt_tokens=812,
        cached_tokens=512,
        prefilled_tokens=812,
        written_tokens=173,
        most_tokens=400,
        tokens_per_s=14.25,
        rows=5,
        acceptance_length=2.37,
    )
    figures: dict[str, object] = {
        "at_ms": at_ms,
        "sequence": at_ms // 1_000,
        "interval_s": 1.0,
        "pod": "embedded",
        "state": "healthy",
        "version": "0.3.0",
        "model": "k3-mini",
        "dtype": "float32",
        "model_digest": "ab" * 32,
        "epoch": 3,
        "placement": "traced",
        "transport": "shm",
        "api_url": "http://127.0.0.1:9911/v1",
        "uptime_s": 11_580.0,
        "decode_tokens": 41,
        "decode_tokens_per_s": 41.3 + 8 * math.sin(at_ms / 600_000),
        "prompt_tokens": 562,
        "prompt_tokens_per_s": 561.5,
        "token_p50_us": 24_100.0,
        "token_p99_us": 40_230.0,
        "acceptance_length": 2.41,
        "running": 3,
        "waiting": 1,
        "finished": 128,
        "failed": 2,
        "preempted": 1,
        "most_lanes": 16,
        "pages": 512,
        "free_pages": 377,
        "prefix_hit_share": 0.631,
        "tiers": tiers(at_ms),
        "lanes": (lane,),
        "nodes": (station(at_ms), spark(1, at_ms), spark(2, at_ms)),
    }
    return Frame(**{**figures, **changed})  # type: ignore[arg-type]


def attention(sentence: str) -> tuple[Attention, ...]:
    return (Attention(severity="warning", subject="spark-1", sentence=sentence),)


def hours(until_ms: int, count: float = 6.0, step_ms: int = 60_000) -> list[Frame]:
    """Frames up to a moment, one every `step_ms`."""
    first = until_ms - int(count * 3_600_000)
    return [frame(at_ms) for at_ms in range(first, until_ms + 1, step_ms)]


@contextmanager
def writing(home: Path) -> Iterator[StateStore]:
    store = StateStore.open_as_writer(home, holder="a test")
    try:
        yield store
    finally:
        store.close()


def record_rollups(home: Path, until_s: int, count: int = 360, step_s: int = 60) -> None:
    """Hops and tokens up to a moment, one bucket every `step_s`; none in the middle tenth."""
    hops, tokens = [], []
    for number in range(count):
        bucket_s = (until_s - (count - number) * step_s) // 10 * 10
        if 0.45 < number / count < 0.55:
            continue
        for place, tier in enumerate(TIERS):
            p50 = round(280 + 900 * (place == 3) + 40 * place + 30 * math.sin(number / 20))
            hops.append(
                HopRollup(bucket_s, tier, "station", 100, 100 * p50, p50, 4 * p50, 400, 60 * p50)
            )
        decode = 400 + round(80 * math.sin(number / 30))
        tokens.append(TokenRollup(bucket_s, "decode", decode, 9_000_000, 2))
        tokens.append(TokenRollup(bucket_s, "prompt", 3 * decode, 2_000_000, 2))
    store = TelemetryStore.open_as_writer(home)
    try:
        store.record(hops=hops, tokens=tokens)
    finally:
        store.close()


def record_frames(home: Path, frames: Sequence[Frame]) -> None:
    """Write frames to telemetry.db as the Station does."""
    store = TelemetryStore.open_as_writer(home)
    try:
        log = FrameLog(store)
        for each in frames:
            log.append(each)
    finally:
        store.close()
