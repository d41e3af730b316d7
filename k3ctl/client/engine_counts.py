"""What the running Station's engine counted while something was measured."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from k3ctl.client.daemon import Daemon

SETTLE_S = 2.0
LOOK_AGAIN_S = 0.01


@dataclass
class Counted:
    """Differences between two looks, added up. verified[k] and accepted[k] count draft k + 1;
    rows[r] counts rounds of r rows; seconds are of passes that decoded, drafts included."""

    rounds: int = 0
    decode_s: float = 0.0
    draft_s: float = 0.0
    verified: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()

    def add(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        self.rounds += after["rounds"] - before["rounds"]
        self.decode_s += after["decode_s"] - before["decode_s"]
        self.draft_s += after["draft_s"] - before["draft_s"]
        for name in ("verified", "accepted", "rows"):
            grown = [b - a for a, b in zip(before[name], after[name], strict=True)]
            setattr(self, name, _sum(getattr(self, name), grown))

    @property
    def pass_s(self) -> float | None:
        """A pass of one lane, its drafts aside; None before any."""
        return (self.decode_s - self.draft_s) / self.rounds if self.rounds else None

    @property
    def block_s(self) -> float | None:
        """A block of drafts; None where none was made."""
        drafting = sum(self.rows[2:])
        return self.draft_s / drafting if drafting and self.draft_s else None

    @property
    def mean_rows(self) -> float | None:
        total = sum(self.rows)
        return sum(r * n for r, n in enumerate(self.rows)) / total if total else None

    def acceptance(self) -> list[dict[str, Any]]:
        """For each draft of a block: how often it was verified, and kept of those."""
        return [
            {"draft": k + 1, "verified": seen, "accepted": kept, "share": round(kept / seen, 4)}
            for k, (seen, kept) in enumerate(zip(self.verified, self.accepted, strict=True))
            if seen
        ]


def counts_now(station: Daemon, finished: int = 0) -> dict[str, Any]:
    """The counts once `finished` requests ended: the last line of an answer leaves the Station a
    little before its count is seen."""
    deadline = monotonic() + SETTLE_S
    while True:
        counts = station.engine()["counts"]
        ended = counts["finished"] + counts["failed"]
        if ended >= finished or monotonic() > deadline:
            return counts
        threading.Event().wait(LOOK_AGAIN_S)


def fit_line(points: Sequence[tuple[float, float]]) -> dict[str, float] | None:
    """Least squares of y = fixed + slope x, with the largest error as a share of y; None below
    two different x."""
    n = len(points)
    spread = n * sum(x * x for x, _ in points) - sum(x for x, _ in points) ** 2 if n else 0.0
    if n < 2 or spread <= 0:
        return None
    sum_x, sum_y = sum(x for x, _ in points), sum(y for _, y in points)
    slope = (n * sum(x * y for x, y in points) - sum_x * sum_y) / spread
    fixed = (sum_y - slope * sum_x) / n
    worst = max(abs(fixed + slope * x - y) / y for x, y in points)
    return {"fixed": fixed, "slope": slope, "worst_error": worst}


def _sum(old: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(old, new, strict=True)) if old else tuple(new)
