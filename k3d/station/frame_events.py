"""What happened, as events: a matter that needs attention begins, and is over; requests failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from k3d.store.frame import Attention, Frame

KINDS = {
    "node": "node",
    "engine": "node",
    "link": "link",
    "sensors": "sensors",
    "memory": "memory",
    "disk": "disk",
    "throttle": "throttle",
    "heat": "heat",
    "gpu": "gpu",
}
"""Kind of a matter, its first word -> kind of its events. Others are told by whoever finds them."""
SETTLE_S = 10.0
"""One matter is told at most so often: a link that flaps is not ten events a second. And how long a
Station may take to be healthy the first time."""

SLOW = ("heat", "throttle", "memory")
SLOW_SETTLE_S = 300.0
"""These go to and fro at their limits for hours."""


class Happened(NamedTuple):
    """An event to be recorded."""

    kind: str
    message: str
    node: str | None


@dataclass
class _Matter:
    """What was told of it last, and when, in seconds of the Station's uptime."""

    told: str | None
    told_s: float
    sentence: str
    subject: str


class FrameEvents:
    """Compares each frame with what was told before. One thread."""

    def __init__(self) -> None:
        self._matters: dict[tuple[str, str], _Matter] = {}
        self._begun_s = 0.0
        """When a new matter counts as told of last: until the pod is healthy once, at the start."""
        self._requests_told: dict[str, tuple[int, float]] = {}

    def look(self, frame: Frame) -> list[Happened]:
        names = {node.name for node in frame.nodes}
        if frame.state == "healthy" and self._begun_s == 0.0:
            self._begun_s = -SLOW_SETTLE_S
            untold = [matter for matter, known in self._matters.items() if known.told is None]
            for matter in untold:
                del self._matters[matter]
        now = {
            (each.subject, each.kind): each
            for each in frame.attention
            if each.kind.partition(" ")[0] in KINDS and each.severity != "note"
        }
        for matter, each in now.items():
            known = self._matters.setdefault(matter, _Matter(None, self._begun_s, "", each.subject))
            known.sentence = each.sentence
        found = list(self._requests(frame))
        for matter in list(self._matters):
            for kind, message in self._changes(matter, now.get(matter), frame.uptime_s):
                node = matter[0] if matter[0] in names else None
                found.append(Happened(kind, message, node))
        return found

    def _requests(self, frame: Frame) -> Iterator[Happened]:
        """Requests that failed or were refused since that was told last."""
        for what, count in (("failed", frame.failed), ("were refused", frame.refused)):
            told, told_s = self._requests_told.setdefault(what, (count, -SETTLE_S))
            if count > told and frame.uptime_s - told_s >= SETTLE_S:
                self._requests_told[what] = (count, frame.uptime_s)
                why = f": {frame.reason}" if frame.reason else ""
                yield Happened("request", f"requests that {what}: {count - told}{why}", None)

    def _changes(
        self, matter: tuple[str, str], now: Attention | None, uptime_s: float
    ) -> Iterator[tuple[str, str]]:
        known = self._matters[matter]
        severity = now.severity if now is not None else None
        settle_s = SLOW_SETTLE_S if matter[1].startswith(SLOW) else SETTLE_S
        if uptime_s - known.told_s < settle_s:
            return
        if severity == known.told:
            if now is None:
                del self._matters[matter]
            return
        kind = KINDS[matter[1].partition(" ")[0]]
        yield kind, known.sentence if now is not None else _over(matter, known.sentence)
        known.told, known.told_s = severity, uptime_s


def _over(matter: tuple[str, str], sentence: str) -> str:
    subject, kind = matter
    return f"{subject} is healthy again" if kind == "node" else f"over: {sentence}"
