"""Frames of a pod that never was, second after second."""

from __future__ import annotations

import random

from k3d.store.frame import Accelerator, Frame, LaneFrame, NodeFrame, Sensors, TierFrame

START_MS = 1_796_000_000_000


def draw_frame(rng: random.Random, number: int, nodes: int = 9, lanes: int = 2) -> Frame:
    """Frame `number` of a pod that decodes: what moves in a real pod is drawn anew."""
    names = ["station", *(f"spark-{at}" for at in range(1, nodes))]
    return Frame(
        at_ms=START_MS + number * 1000,
        sequence=number,
        interval_s=1.0,
        pod="drawn",
        state="healthy",
        uptime_s=float(number),
        decode_tokens_per_s=round(rng.uniform(20, 40), 2),
        decode_tokens=30 * number,
        token_p50_us=round(rng.uniform(20_000, 40_000), 1),
        token_p99_us=round(rng.uniform(40_000, 90_000), 1),
        nodes=tuple(_node(rng, name) for name in names),
        tiers=tuple(_tier(rng, name) for name in ("hbm", "rtx", "grace", "spark")),
        lanes=tuple(_lane(rng, at, number) for at in range(lanes)),
    )


def _node(rng: random.Random, name: str) -> NodeFrame:
    return NodeFrame(
        name=name,
        role="station" if name == "station" else "spark",
        state="healthy",
        link=None if name == "station" else "ready",
        version="0.5.0",
        pid=4711,
        slots_used=5704,
        slots=5704,
        rss_bytes=112_000_000_000 + rng.randrange(1000) * 4096,
        progress_age_s=round(rng.uniform(0, 0.05), 3),
        rtt_us=round(rng.uniform(20, 60), 1),
        hop_p50_us=round(rng.uniform(80, 90), 1),
        hop_p99_us=round(rng.uniform(100, 300), 1),
        compute_us=round(rng.uniform(60, 80), 1),
        hops=3000 + rng.randrange(60),
        sensors=_sensors(rng),
    )


def _sensors(rng: random.Random) -> Sensors:
    device = Accelerator(
        name="NVIDIA GB10",
        power_w=round(rng.uniform(30, 60), 1),
        temperature_c=float(rng.randrange(50, 75)),
        clock_mhz=float(rng.randrange(2100, 2200)),
        busy_share=round(rng.uniform(0.5, 1), 2),
    )
    return Sensors(
        age_s=round(rng.uniform(0, 1), 2),
        temperature_c=float(rng.randrange(50, 75)),
        clock_mhz=float(rng.randrange(2000, 3000)),
        busy_share=round(rng.uniform(0, 0.3), 3),
        memory_used_bytes=113_000_000_000 + rng.randrange(1000) * 4096,
        memory_bytes=127_600_748_000,
        disk_free_bytes=900_000_000_000,
        accelerators=(device,),
        missing={"power_w": "nothing measures the whole node"},
    )


def _tier(rng: random.Random, name: str) -> TierFrame:
    return TierFrame(
        name=name,
        experts=9558,
        slots=9558,
        hit_share=round(rng.uniform(0, 0.5), 4),
        hop_p50_us=round(rng.uniform(20, 90), 1),
        hop_p99_us=round(rng.uniform(90, 300), 1),
        hops=3000,
        busy_share=round(rng.uniform(0, 1), 4),
    )


def _lane(rng: random.Random, at: int, number: int) -> LaneFrame:
    return LaneFrame(
        id=f"chatcmpl-{at:08d}-0",
        source="v1/chat/completions",
        phase="decode",
        age_s=float(number),
        prompt_tokens=1000,
        prefilled_tokens=1000,
        written_tokens=15 * number,
        most_tokens=100_000,
        tokens_per_s=round(rng.uniform(10, 20), 2),
        rows=rng.randrange(1, 5),
        acceptance_length=2.5,
    )
