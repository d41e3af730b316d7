"""How often the console asks for a frame: as often as was asked, while drawing keeps up."""

from __future__ import annotations

from collections.abc import Callable

from textual.timer import Timer

from k3ctl.tui.feed import LEAST_INTERVAL_S

MOST_INTERVAL_S = 4.0
DRAWING_SHARE = 0.2


class Pace:
    """Calls `tick` at an interval that `every` keeps; `asked_s` is the one that was asked for."""

    def __init__(
        self,
        asked_s: float,
        tick: Callable[[], None],
        every: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self.asked_s = max(LEAST_INTERVAL_S, asked_s)
        self.interval_s = self.asked_s
        self._tick = tick
        self._every = every
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._every(self.interval_s, self._tick)

    def drew(self, drawn_s: float) -> None:
        """Slower when drawing takes more than its share of the interval, and back again."""
        wanted = self.asked_s
        while wanted < MOST_INTERVAL_S and drawn_s > DRAWING_SHARE * wanted:
            wanted *= 2
        if wanted != self.interval_s and self._timer is not None:
            self.interval_s = wanted
            self._timer.stop()
            self._timer = self._every(wanted, self._tick)
