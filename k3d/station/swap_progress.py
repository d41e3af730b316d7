"""How far a swap is: written by its thread, read by whoever asks for the status."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

Phase = Literal["waiting", "staging", "committing", "turning", "retiring", "ended"]


@dataclass
class SwapProgress:
    """One swap. Bytes are those really copied, repeats too."""

    intent: str
    waves: int
    copies: int
    planned_bytes: int
    rate_bytes_s: int
    phase: Phase = "waiting"
    wave: int = 0
    copied_bytes: int = 0
    paused: str | None = None
    pauses: int = 0
    started_s: float = field(default_factory=monotonic)

    def pause(self, reason: str) -> None:
        if self.paused != reason:
            self.pauses += 1
        self.paused = reason

    @property
    def left_s(self) -> float:
        """Modelled: the bytes that are left at the rate limit."""
        return max(0, self.planned_bytes - self.copied_bytes) / self.rate_bytes_s
