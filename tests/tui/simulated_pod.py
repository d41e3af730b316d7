"""A pod of any size as frames, the same for the same seed: with faults, gaps and hot GPUs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from k3d.errors import K3Error
from k3d.store.frame import (
    Accelerator,
    Attention,
    Frame,
    LaneFrame,
    NodeFrame,
    Sensors,
    State,
    TierFrame,
)

BEGIN_MS = 1_796_000_000_000
GIB = 2**30
TIERS = (("hbm", 9_558, 0.20), ("rtx", 5_177, 0.10), ("grace", 24_852, 0.29))
SPARK_SLOTS = 5_704


@dataclass(frozen=True)
class SimulatedPod:
    """Frames by number. `faults` makes every 17th spark degraded, every 29th down, every 41st
    unknown; without it all are healthy."""

    sparks: int = 8
    lanes: int = 4
    faults: bool = True
    seed: int = 1

    def frame(self, number: int) -> Frame:
        """The frame of second `number`."""
        return _frame(self, number)

    def made(self, number: int) -> Frame:
        draw = random.Random(f"{self.seed} {number}")
        nodes = (self._station(number, draw), *self._spark_nodes(number, draw))
        tiers = self._tiers(number, draw)
        busy = self.lanes > 0
        lanes = tuple(self._lane(each, number, draw) for each in range(self.lanes))
        rates = [lane.tokens_per_s for lane in lanes if lane.tokens_per_s is not None]
        p50_us = 48_000.0 + 6_000.0 * math.sin(number / 25) + draw.uniform(0, 3_000)
        down = [node for node in nodes if node.state == "down"]
        state: State = "degraded" if any(n.state != "healthy" for n in nodes) else "healthy"
        return Frame(
            at_ms=BEGIN_MS + number * 1000,
            sequence=number,
            interval_s=1.0,
            pod=f"simulated-{self.sparks}",
            state=state,
            reason=f"{down[0].name} is down" if down else None,
            version="0.5.0",
            model="kimi-k3",
            model_digest="5f0c3d",
            dtype="nvfp4",
            epoch=7,
            placement="cost-ranked",
            transport="tcp",
            api_url="http://127.0.0.1:8000/v1",
            uptime_s=3_600.0 + number,
            decode_tokens_per_s=sum(rates) if rates else None,
            prompt_tokens_per_s=520.0 + draw.uniform(-30, 30) if number % 7 == 0 else None,
            decode_tokens=number * 60,
            prompt_tokens=number * 80,
            token_p50_us=p50_us if busy else None,
            token_p99_us=p50_us * 1.9 if busy else None,
            acceptance_length=2.4 + 0.3 * math.sin(number / 60) if busy else None,
            running=min(self.lanes, 16),
            waiting=max(0, self.lanes - 16),
            finished=number // 9,
            most_lanes=16,
            pages=4_096,
            free_pages=4_096 - 120 * min(self.lanes, 16),
            prefix_hit_share=0.61 if busy else None,
            nodes=nodes,
            tiers=tiers,
            lanes=lanes,
            attention=tuple(self._attention(nodes)),
            provenance="simulated",
        )

    def _station(self, number: int, draw: random.Random) -> NodeFrame:
        gpus = (
            Accelerator(
                name="NVIDIA GB300", power_w=900 + draw.uniform(0, 80), power_cap_w=1_100.0,
                temperature_c=61.0, clock_mhz=1_920.0, memory_used_bytes=250 * GIB,
                memory_bytes=279 * GIB, busy_share=0.83,
            ),
            Accelerator(
                name="NVIDIA RTX PRO 6000", power_w=310 + draw.uniform(0, 20), power_cap_w=600.0,
                temperature_c=72.0, clock_mhz=2_300.0, memory_used_bytes=88 * GIB,
                memory_bytes=96 * GIB, busy_share=0.44,
            ),
        )  # fmt: skip
        sensors = Sensors(
            age_s=0.4, power_w=1_480 + draw.uniform(0, 60), temperature_c=64.0, clock_mhz=3_100.0,
            busy_share=0.31, memory_used_bytes=460 * GIB, memory_bytes=496 * GIB,
            swap_used_bytes=0, disk_free_bytes=3_100 * GIB, accelerators=gpus, simulated=True,
        )  # fmt: skip
        return NodeFrame(
            name="station", role="station", state="healthy", version="0.5.0", pid=4_001,
            slots_used=39_587, slots=39_587, rss_bytes=22 * GIB, progress_age_s=0.2,
            simulated=True, sensors=sensors,
        )  # fmt: skip

    def _spark_nodes(self, number: int, draw: random.Random) -> list[NodeFrame]:
        return [self._spark(each, number, draw) for each in range(1, self.sparks + 1)]

    def _spark(self, each: int, number: int, draw: random.Random) -> NodeFrame:
        name = f"spark-{each}"
        state, reason = self._spark_state(each, name)
        if state == "down":
            return NodeFrame(
                name=name, role="spark", state="down", reason=reason, link="lost",
                slice=f"{each}/{self.sparks}", slots=SPARK_SLOTS, progress_age_s=40.0 + number,
                simulated=True,
            )  # fmt: skip
        hot = each % 23 == 5
        missing = {}
        power: float | None = 118 + draw.uniform(-6, 6)
        if each % 13 == 0:
            power, missing["power_w"] = None, "the driver does not support reading power here"
        gpu = Accelerator(
            name="NVIDIA GB10", power_w=power, temperature_c=91.0 if hot else 63.0 + each % 9,
            clock_mhz=1_410.0 if hot else 2_200.0, memory_used_bytes=101 * GIB,
            memory_bytes=119 * GIB, busy_share=0.5 + draw.uniform(-0.1, 0.1),
            throttled=("thermal slowdown",) if hot else (),
        )  # fmt: skip
        sensors = None
        if each % 37 != 0:
            sensors = Sensors(
                age_s=0.5, temperature_c=60.0 + each % 9, clock_mhz=2_800.0, busy_share=0.2,
                memory_used_bytes=104 * GIB, memory_bytes=119 * GIB, disk_free_bytes=700 * GIB,
                accelerators=(gpu,), missing=missing, simulated=True,
            )  # fmt: skip
        hop = 260.0 + each % 7 * 9 + draw.uniform(0, 40)
        return NodeFrame(
            name=name, role="spark", state=state, reason=reason, link="up", version="0.5.0",
            pid=5_000 + each, slice=f"{each}/{self.sparks}", slots_used=SPARK_SLOTS - each % 5,
            slots=SPARK_SLOTS, rss_bytes=3 * GIB, progress_age_s=0.3,
            rtt_us=38 + draw.uniform(0, 9),
            hop_p50_us=hop, hop_p99_us=hop * (6.0 if state == "degraded" else 2.1),
            compute_us=120.0, hops=900, simulated=True, sensors=sensors,
        )  # fmt: skip

    def _spark_state(self, each: int, name: str) -> tuple[State, str | None]:
        if not self.faults:
            return "healthy", None
        if each % 29 == 0:
            return "down", f"{name} cannot be reached: connection refused"
        if each % 41 == 0:
            return "unknown", f"{name} has said nothing since the pod started"
        if each % 17 == 0:
            return "degraded", "its hops take six times as long as its neighbours'"
        return "healthy", None

    def _tiers(self, number: int, draw: random.Random) -> tuple[TierFrame, ...]:
        found = []
        spark_slots = SPARK_SLOTS * self.sparks
        for order, (name, slots, share) in enumerate((*TIERS, ("spark", spark_slots, 0.41))):
            p50 = (24.0, 58.0, 91.0, 262.0)[order] * (1 + 0.1 * math.sin(number / 15 + order))
            found.append(
                TierFrame(
                    name=name,
                    experts=slots,
                    slots=slots,
                    hit_share=share,
                    hop_p50_us=p50 if self.lanes else None,
                    hop_p99_us=p50 * draw.uniform(1.8, 2.6) if self.lanes else None,
                    hops=900 if self.lanes else 0,
                    busy_share=0.1 * (order + 1),
                    simulated=True,
                )
            )
        return tuple(found)

    def _lane(self, each: int, number: int, draw: random.Random) -> LaneFrame:
        phase = "waiting" if each >= 16 else "prompt" if each % 5 == 4 else "decode"
        decoding = phase == "decode"
        return LaneFrame(
            id=f"req-{each + 1:03}", source="v1/chat/completions" if each % 2 else "chat",
            phase=phase, age_s=4.0 + each * 3 + number % 60, prompt_tokens=300 + 70 * each,
            cached_tokens=64 * (each % 4), prefilled_tokens=150 if phase == "prompt" else 0,
            written_tokens=(number % 60) * 12 if decoding else 0, most_tokens=1_024,
            tokens_per_s=14.0 + 4.0 * math.sin(number / 40) + draw.uniform(-2, 2)
            if decoding
            else None,
            rows=3 + each % 3 if decoding else None,
            acceptance_length=2.2 + 0.1 * (each % 5) if decoding else None,
        )  # fmt: skip

    @staticmethod
    def _attention(nodes: Sequence[NodeFrame]) -> list[Attention]:
        found = []
        for node in nodes:
            if node.state in ("down", "degraded"):
                severity = "alert" if node.state == "down" else "warning"
                sentence = node.reason or node.state
                found.append(
                    Attention(
                        severity=severity,
                        subject=node.name,
                        sentence=sentence,
                        command=f"k3ctl logs {node.name}",
                    )
                )
        return found


@lru_cache(maxsize=1024)
def _frame(pod: SimulatedPod, number: int) -> Frame:
    return pod.made(number)


class SimulatedSource:
    """Frames of a simulated pod, the next one for every question."""

    def __init__(self, pod: SimulatedPod) -> None:
        self._pod = pod
        self._number = 0
        self.error: K3Error | None = None
        self.cancelled: list[str] = []

    def latest(self) -> Frame:
        if self.error is not None:
            raise self.error
        self._number += 1
        return self._pod.frame(self._number)

    def cancel(self, lane: str) -> None:
        self.cancelled.append(lane)


class SimulatedRecording:
    """A recording of `seconds` frames."""

    def __init__(self, pod: SimulatedPod, seconds: int) -> None:
        self._pod = pod
        self._seconds = seconds

    def span(self) -> tuple[int, int] | None:
        if not self._seconds:
            return None
        return BEGIN_MS, BEGIN_MS + (self._seconds - 1) * 1000

    def at(self, at_ms: int) -> Frame | None:
        number = (at_ms - BEGIN_MS) // 1000
        return self._pod.frame(min(number, self._seconds - 1)) if number >= 0 else None

    def after(self, at_ms: int) -> Frame | None:
        number = (at_ms - BEGIN_MS) // 1000 + 1
        return self._pod.frame(max(0, number)) if number < self._seconds else None

    def between(self, a_ms: int, b_ms: int, most: int) -> Sequence[Frame]:
        first = max(0, -(-(a_ms - BEGIN_MS) // 1000))
        last = min(self._seconds - 1, (b_ms - BEGIN_MS) // 1000)
        step = max(1, -(-(last - first + 1) // most))
        return [self._pod.frame(number) for number in range(first, last + 1, step)]
