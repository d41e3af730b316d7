"""What an operator should look at, read off a frame and those of the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from k3d.store.frame import Accelerator, Attention, Frame, NodeFrame, Sensors

WINDOW_S = 60.0
"""How long a refused or failed request is worth a line."""
FLAPPING_S = 300.0
FLAPPING_JOINS = 3
"""So many times within FLAPPING_S a link became ready again."""
NEAR_LIMIT_C = 5.0
SHORT_MEMORY = 0.05
"""Of a node's memory; below a fifth of it, alert."""
SHORT_DISK_BYTES = 2 * 2**30
"""Below a quarter of it, alert."""
CHOSEN = ("application clocks", "sync boost", "display clocks")
"""What holds a GPU back because somebody set it so."""
UNREACHED = ("connecting", "lost")
STALE_S = 10.0
"""Sensors are read every second."""


@dataclass(frozen=True)
class _Past:
    uptime_s: float
    refused: int
    failed: int
    joins: dict[str, int]


class AttentionWatch:
    """Remembers the counts of the last minutes. One thread looks."""

    def __init__(self) -> None:
        self._past: deque[_Past] = deque()

    def look(
        self, frame: Frame, joins: Mapping[str, int], *, engine_alive: bool
    ) -> list[Attention]:
        """The worst first. `joins`: how often each link has become ready."""
        now = _Past(frame.uptime_s, frame.refused, frame.failed, dict(joins))
        self._past.append(now)
        while self._past[0].uptime_s < now.uptime_s - FLAPPING_S:
            self._past.popleft()
        found = [
            *_pod(frame, engine_alive),
            *(each for node in frame.nodes for each in _node(node)),
            *self._links(now),
            *self._requests(now, frame.pod),
            *_swap(frame),
        ]
        order = ("alert", "warning", "note")
        return sorted(found, key=lambda each: order.index(each.severity))

    def _links(self, now: _Past) -> Iterator[Attention]:
        first = self._past[0].joins
        for node, count in now.joins.items():
            again = count - max(1, first.get(node, 0))  # the first time is no trouble
            if again >= FLAPPING_JOINS:
                yield Attention(
                    severity="warning",
                    subject=node,
                    kind="link",
                    sentence=f"the link to {node} was lost and joined again {again} times in "
                    f"{FLAPPING_S / 60:.0f} minutes",
                    command=f"k3ctl logs {node}",
                )

    def _requests(self, now: _Past, pod: str) -> Iterator[Attention]:
        older = [each for each in self._past if each.uptime_s <= now.uptime_s - WINDOW_S]
        before = older[-1] if older else self._past[0]
        failed, refused = now.failed - before.failed, now.refused - before.refused
        if failed > 0:
            yield Attention(
                severity="alert",
                subject=pod,
                kind="failed",
                sentence=f"requests that failed within the last minute: {failed}",
                command="k3ctl logs station",
            )
        if refused > 0:
            yield Attention(
                severity="warning",
                subject=pod,
                kind="refused",
                sentence=f"requests refused within the last minute, as many wait as may: {refused}",
                command="k3ctl pod status",
            )


def _pod(frame: Frame, engine_alive: bool) -> Iterator[Attention]:
    station = next((node.name for node in frame.nodes if node.role == "station"), "station")
    if not engine_alive:
        yield Attention(
            severity="alert",
            subject=station,
            kind="engine",
            sentence="the engine has ended; no request is answered",
            command=f"k3ctl logs {station}",
        )
    if frame.synthetic_acceptance is not None:
        yield Attention(
            severity="alert",
            subject=frame.pod,
            kind="synthetic",
            sentence=f"drafts are accepted unchecked, {frame.synthetic_acceptance:g} a round: "
            "answers are not the model's",
            command="k3ctl pod down; k3ctl pod up",
        )


def _node(node: NodeFrame) -> Iterator[Attention]:
    if node.state in ("down", "degraded"):
        yield Attention(
            severity="alert" if node.state == "down" else "warning",
            subject=node.name,
            kind="node",
            sentence=node.reason or f"{node.name} is {node.state}",
            command="k3ctl pod up" if node.link in UNREACHED else f"k3ctl logs {node.name}",
        )
    if node.sensors is not None:
        yield from _sensors(node.name, node.sensors)


def _sensors(name: str, sensors: Sensors) -> Iterator[Attention]:
    show = f"k3ctl logs {name}"
    if sensors.age_s > STALE_S:
        yield Attention(
            severity="warning",
            subject=name,
            kind="sensors",
            sentence=f"the sensors of {name} were read {sensors.age_s:.0f} s ago",
            command=show,
        )
    yield from _heat(name, "its hottest sensor", sensors.temperature_c, sensors.temperature_limit_c)
    for each in sensors.accelerators:
        yield from _accelerator(name, each)
    used, size = sensors.memory_used_bytes, sensors.memory_bytes
    if used is not None and size and size - used < SHORT_MEMORY * size:
        short = size - used < SHORT_MEMORY / 5 * size
        yield Attention(
            severity="alert" if short else "warning",
            subject=name,
            kind="memory",
            sentence=f"{name} has {(size - used) / 2**20:,.0f} MiB of its memory left, "
            f"{(size - used) / size:.1%}",
            command="k3ctl pod status",
        )
    free = sensors.disk_free_bytes
    if free is not None and free < SHORT_DISK_BYTES:
        yield Attention(
            severity="alert" if free < SHORT_DISK_BYTES / 4 else "warning",
            subject=name,
            kind="disk",
            sentence=f"the disk of {name}'s home has {free / 2**20:,.0f} MiB left",
            command="k3ctl bank gc --dry-run",
        )


def _accelerator(name: str, each: Accelerator) -> Iterator[Attention]:
    if each.lost is not None or (each.age_s or 0.0) > STALE_S:
        yield Attention(
            severity="alert" if each.lost is not None else "warning",
            subject=name,
            kind=f"gpu {each.index}",
            sentence=each.lost or f"NVML of {name} gave no new reading for {each.age_s:.0f} s",
            command=f"k3ctl logs {name}",
        )
        return
    yield from _heat(name, each.name, each.temperature_c, each.temperature_limit_c)
    held_back = [reason for reason in each.throttled if reason not in CHOSEN]
    if held_back:
        hot = any("thermal" in reason or "hardware" in reason for reason in held_back)
        yield Attention(
            severity="warning" if hot else "note",
            subject=name,
            kind=f"throttle of {each.name}",
            sentence=f"{each.name} of {name} is held back: {', '.join(held_back)}",
            command="k3ctl plot sensors --since 1h",
        )


def _heat(
    name: str, what: str, temperature_c: float | None, limit_c: float | None
) -> Iterator[Attention]:
    if temperature_c is None or limit_c is None or temperature_c < limit_c - NEAR_LIMIT_C:
        return
    yield Attention(
        severity="alert" if temperature_c >= limit_c else "warning",
        subject=name,
        kind=f"heat of {what}",
        sentence=f"{what} of {name} is at {temperature_c:.0f} C; its limit is {limit_c:.0f} C",
        command="k3ctl plot sensors --since 1h",
    )


def _swap(frame: Frame) -> Iterator[Attention]:
    if frame.swap is not None and frame.swap.paused is not None:
        yield Attention(
            severity="note",
            subject=frame.pod,
            kind="swap",
            sentence=f"the swap to {frame.swap.to} is paused: {frame.swap.paused}",
            command="k3ctl placement status",
        )
