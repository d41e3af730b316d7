"""What a frame's requests add up to, counted from the rows that a person sees beside it."""

from __future__ import annotations

from dataclasses import dataclass

from k3ctl.tui.trail import total
from k3d.store.frame import Frame

MOST_LISTED = 64
"""Waiting requests that a frame lists; of more of them it has the number alone."""

APART = 0.02
"""By so much the pod's tokens and the rows' may differ: they are counted one after the other."""


@dataclass(frozen=True)
class LaneSums:
    """Requests in lanes, `waiting` for one, and those of them that have no row.

    `rows_tokens_per_s` is of the rows, each over the interval of the frame; `tokens_per_s` is all
    that was decoded in it, by requests that ended meanwhile too. None where there was nothing.
    """

    running: int
    waiting: int
    unlisted: int
    rows_tokens_per_s: float | None
    tokens_per_s: float | None

    @property
    def ended_too(self) -> bool:
        """Whether the rows do not account for the pod's tokens."""
        whole, rows = self.tokens_per_s or 0.0, self.rows_tokens_per_s or 0.0
        return abs(whole - rows) > APART * whole


def lane_sums(frame: Frame) -> LaneSums:
    """Of one frame. Its own counts were made a moment beside its rows, or are the most of a
    stretch that it stands for: only what was not listed is taken from them."""
    listed = sum(lane.phase == "waiting" for lane in frame.lanes)
    waiting = max(listed, frame.waiting) if listed >= MOST_LISTED else listed
    return LaneSums(
        running=len(frame.lanes) - listed,
        waiting=waiting,
        unlisted=waiting - listed,
        rows_tokens_per_s=total([lane.tokens_per_s for lane in frame.lanes]),
        tokens_per_s=frame.decode_tokens_per_s,
    )
