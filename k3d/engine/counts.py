"""What an engine counted since its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from k3d.engine.cost_curve import CostLine
from k3d.engine.prefix_cache import CacheCounts

MOST_DRAFTS = 16


@dataclass(frozen=True)
class EngineCounts:
    """Totals since start; seconds are of passes, not of waiting.

    A pass with rows of a prompt and of lanes that decode is split by rows. `rounds` decoded a
    lane; verified[k] and accepted[k] count draft k + 1 over all of them; rows[r] counts rounds
    that verified r rows. draft_s is inside decode_s. `refused` found the queue full.
    """

    running: int
    waiting: int
    finished: int
    failed: int
    cancelled: int
    prompt_tokens: int
    prompt_s: float
    decode_tokens: int
    decode_s: float
    draft_s: float
    passes: int
    rounds: int
    verified: tuple[int, ...]
    accepted: tuple[int, ...]
    rows: tuple[int, ...]
    preempted: int
    pages: int
    free_pages: int
    cache: CacheCounts | None
    cost: CostLine
    refused: int = 0


@dataclass
class Totals:
    """The part of EngineCounts that adds up."""

    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    prompt_s: float = 0.0
    decode_tokens: int = 0
    decode_s: float = 0.0
    passes: int = 0
    rounds: int = 0
    verified: list[int] = field(default_factory=lambda: [0] * MOST_DRAFTS)
    accepted: list[int] = field(default_factory=lambda: [0] * MOST_DRAFTS)
    rows: list[int] = field(default_factory=lambda: [0] * (MOST_DRAFTS + 2))

    def note_round(self, verified: int, accepted: int) -> None:
        """One lane's round: `accepted` of `verified` drafts."""
        self.rounds += 1
        self.rows[verified + 1] += 1
        for k in range(min(verified, accepted + 1)):
            self.verified[k] += 1
        for k in range(accepted):
            self.accepted[k] += 1
