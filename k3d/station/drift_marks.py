"""What the router chose since some moment: marks of the counts, now and then, and differences."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import numpy as np

from k3d.experts.expert_use import ExpertUse
from k3d.placement.population import Population

MARKS = 24
"""Marks in a window; a pod of the largest model keeps 8 MB of them."""


@dataclass(frozen=True)
class _Mark:
    """Counts u32 [layers, experts] after `rows` rows."""

    at_s: float
    rows: int
    counts: np.ndarray


class UseMarks:
    """Marks over the last `window_s`, and one of when the map in force came. Any thread may tick
    and ask."""

    def __init__(
        self,
        use: ExpertUse,
        top_k: int,
        window_s: float,
        epoch: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._use = use
        self._top_k = top_k
        self._every_s = window_s / MARKS
        self._clock = clock
        self._guard = threading.Lock()
        self._epoch = epoch
        self._turned = self._mark()
        self._marks: deque[_Mark] = deque([self._turned], maxlen=MARKS + 1)

    def tick(self, epoch: int) -> None:
        """Mark, if it is time or the epoch has turned."""
        with self._guard:
            turned = epoch != self._epoch
            if turned or self._clock() - self._marks[-1].at_s >= self._every_s:
                self._marks.append(self._mark())
            if turned:
                self._epoch, self._turned = epoch, self._marks[-1]

    def since(self, time_s: float | None) -> tuple[float, Population]:
        """Seconds looked back, about `time_s` and as far as marks go, and what was chosen in
        them; None is since the map in force came, and nothing looks back further than that: what
        was chosen before says nothing about this map."""
        with self._guard:
            now = self._mark()
            mark = self._turned
            if time_s is not None:
                wanted_s = now.at_s - time_s
                late = (each for each in self._marks if each.at_s >= wanted_s)
                old = [each for each in self._marks if each.at_s < wanted_s]
                mark = old[-1] if old else next(late, self._marks[0])
                if mark.at_s < self._turned.at_s:
                    mark = self._turned
        age_s = now.at_s - mark.at_s
        counts = (now.counts - mark.counts).astype(np.int64)
        rows = int(counts[0].sum()) // self._top_k
        source = f"live traffic of the last {age_s:.0f} s"
        return age_s, Population(counts, rows, self._top_k, 1.0, "measured", source)

    def _mark(self) -> _Mark:
        counts = self._use.snapshot().astype(np.uint32)
        return _Mark(self._clock(), self._use.rows, counts)
