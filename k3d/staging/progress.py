"""Progress of long work: a line now and then, with the rate and the time that is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

EVERY_S = 0.5
Emit = Callable[[dict[str, Any]], None]


def both(one: Emit, other: Emit) -> Emit:
    """An Emit that tells two."""

    def emit(line: dict[str, Any]) -> None:
        one(line)
        other(line)

    return emit


def say_nothing(_line: dict[str, Any]) -> None:
    """An Emit for whoever wants no progress."""


@dataclass
class Progress:
    """Counts bytes of one phase of `total_bytes` and emits at most a line every EVERY_S.

    `what` is NODE/FILE, or words; `found` counts what was damaged.
    """

    emit: Emit
    phase: str
    total_bytes: int
    what: str | None = None
    done_bytes: int = 0
    found: int = 0

    def __post_init__(self) -> None:
        self._began_s = monotonic()
        self._said_s = 0.0

    def add(self, size_bytes: int) -> None:
        self.done_bytes += size_bytes
        now = monotonic()
        if now - self._said_s >= EVERY_S or self.done_bytes >= self.total_bytes:
            self._said_s = now
            self.emit(self.line())

    def line(self) -> dict[str, Any]:
        rate = rate_of(self.done_bytes, monotonic() - self._began_s)
        return {
            "type": "progress",
            "phase": self.phase,
            "what": self.what,
            "bytes": self.done_bytes,
            "total_bytes": self.total_bytes,
            "bytes_per_s": rate,
            "eta_s": eta_of(self.total_bytes - self.done_bytes, rate),
            "found": self.found,
        }


def rate_of(size_bytes: float, time_s: float) -> float | None:
    """Bytes a second, None before there is any."""
    return size_bytes / time_s if size_bytes > 0 and time_s > 0 else None


def eta_of(left_bytes: float, rate: float | None) -> float | None:
    return None if rate is None else max(0.0, left_bytes / rate)
