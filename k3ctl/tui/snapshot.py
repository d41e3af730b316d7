"""A snapshot: all that a pane is given to draw. Frozen; nothing else crosses to the panes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from k3d.store.frame import Frame, NodeFrame

Source = Literal["connecting", "live", "late", "lost", "paused", "replay"]
"""late: asked and not answered in time. lost: the last question ended in an error. In both the
frame is the last good one, and its age says how old."""
Freshness = Literal["fresh", "stale", "lost"]

STALE_INTERVALS = 2.0
LOST_INTERVALS = 5.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The last good frame, how old it is, and how the source of frames does.

    `frame` is None until the first one. `age_s` counts from its arrival; 0 in a replay. `number`
    grows with every frame: two snapshots of one number differ in age and source alone.
    """

    frame: Frame | None
    age_s: float
    source: Source
    interval_s: float
    number: int
    reason: str | None = None
    hint: str | None = None

    @property
    def freshness(self) -> Freshness:
        """Of the frame as a whole; what a pause keeps does not age."""
        if self.source in ("paused", "replay"):
            return "fresh"
        return freshness(self.age_s, self.interval_s)

    def node_age_s(self, node: NodeFrame) -> float | None:
        """Since the node was last seen to make progress; None when that is not known."""
        if node.progress_age_s is None:
            return None
        aged = 0.0 if self.source in ("paused", "replay") else self.age_s
        return node.progress_age_s + aged

    def node_freshness(self, node: NodeFrame) -> Freshness:
        """A node is as old as its own last progress; one that nothing is known of is lost."""
        age_s = self.node_age_s(node)
        if age_s is None:
            return "lost" if node.state in ("down", "unknown") else self.freshness
        return freshness(age_s, max(self.interval_s, 1.0))


def freshness(age_s: float, interval_s: float) -> Freshness:
    """Dim after two intervals, `?` after five."""
    if age_s > LOST_INTERVALS * interval_s:
        return "lost"
    return "stale" if age_s > STALE_INTERVALS * interval_s else "fresh"


EMPTY = Snapshot(frame=None, age_s=0.0, source="connecting", interval_s=1.0, number=0)
