"""How far long work is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Self

from k3ctl.cli.bars import bar
from k3ctl.cli.output import Output, bar_shown, clear_bar, draw_bar, unicode_shown
from k3ctl.cli.table import cut, seconds

EVERY_S = 10.0
"""Between two lines in a log. The first is written at once."""
REDRAWN_S = 0.1
BAR = 20
SURE_S = 3.0
"""How long work must have gone on before it is said how long the rest takes."""


class Progress:
    """Call it with words, with the part that is done, 0 to 1, where that is known, and with the
    phase of the work: another phase is said at once, also in a log.

    Use as a context manager: at its end the bar is gone, and a log has the last state as its last
    line. -q says nothing at all.
    """

    def __init__(self, output: Output, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._clock = clock
        self._begun_s = clock()
        self._said_s: float | None = None
        self._phase: object = None
        self._told: str | None = None
        self._unsaid: str | None = None
        self._bar = bar_shown()

    def __call__(self, words: str, part: float | None = None, phase: object = None) -> None:
        if self._output.quiet:
            return
        now_s = self._clock()
        since_s = REDRAWN_S if self._bar else EVERY_S
        soon = self._said_s is not None and now_s - self._said_s < since_s
        share = "" if part is None else f"{100 * part:.0f} %, "
        if soon and phase == self._phase:
            told = f"{share}{words}"
            self._unsaid = told if told != self._told else None
            return
        self._phase, self._told, self._unsaid = phase, f"{share}{words}", None
        self._said_s = now_s
        left = self._left(part, now_s)
        if not self._bar:
            self._output.note(f"{self._told}{left}")
            return
        drawn = "" if part is None else f"{_bar(part)} {100 * part:3.0f} % "
        columns = shutil.get_terminal_size().columns
        draw_bar(cut(f"{drawn}{words}{left}", max(20, columns - 1)))

    def _left(self, part: float | None, now_s: float) -> str:
        taken_s = now_s - self._begun_s
        if part is None or not 0 < part < 1 or taken_s < SURE_S:
            return ""
        return f", about {seconds(taken_s * (1 - part) / part)} left"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        clear_bar()
        if self._unsaid is not None and not self._bar:
            self._output.note(self._unsaid)


def _bar(part: float) -> str:
    track = "·" if unicode_shown() else "."
    return bar(part, 1.0, BAR)[:BAR].ljust(BAR, track)
