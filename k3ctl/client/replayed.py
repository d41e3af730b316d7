"""A part of a recording, at the pace it is replayed at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from k3ctl.client.moments import local
from k3ctl.client.records import Recording
from k3d.errors import NotFound
from k3d.store.frame import Frame

LEAST_INTERVAL_S = 0.25


@dataclass(frozen=True)
class Pace:
    """How a replay of some speed is shown: a frame every `interval_s`, `step_ms` apart in the
    recording. A console cannot draw faster than four frames a second, so beyond fourfold speed
    frames are left out."""

    interval_s: float
    step_ms: int

    @classmethod
    def of(cls, speed: float) -> Pace:
        interval_s = max(LEAST_INTERVAL_S, 1.0 / speed)
        return cls(interval_s, max(1, round(1000 * speed * interval_s)))


class Replayed:
    """The frames of a recording between two moments; going on, those `step_ms` apart.

    Both ends are part of it; None is the recording's own end. Raises NotFound when nothing was
    recorded in between.
    """

    def __init__(
        self, recording: Recording, first_ms: int | None, last_ms: int | None, step_ms: int = 1
    ) -> None:
        self._recording = recording
        self._first_ms, self._last_ms = first_ms, last_ms
        self._step_ms = step_ms if step_ms > 1000 else 1
        if self.span() is None:
            raise _nothing(recording)

    def span(self) -> tuple[int, int] | None:
        kept = self._recording.span()
        if kept is None:
            return None
        first = kept[0] if self._first_ms is None else max(kept[0], self._first_ms)
        last = kept[1] if self._last_ms is None else min(kept[1], self._last_ms)
        return (first, last) if first <= last else None

    def at(self, at_ms: int) -> Frame | None:
        """The newest frame not after the moment: what is sought is found, whatever the step."""
        span = self.span()
        if span is None or at_ms < span[0]:
            return None
        return self._recording.at(min(at_ms, span[1]))

    def after(self, at_ms: int) -> Frame | None:
        """The first frame a step or more after the moment."""
        span = self.span()
        if span is None or at_ms >= span[1]:
            return None
        next_step_ms = (at_ms // self._step_ms + 1) * self._step_ms
        frame = self._recording.after(max(at_ms, next_step_ms - 1))
        return None if frame is None or frame.at_ms > span[1] else frame

    def between(self, first_ms: int, last_ms: int, most: int) -> Sequence[Frame]:
        span = self.span()
        if span is None:
            return ()
        return self._recording.between(first_ms, min(last_ms, span[1]), most)

    def close(self) -> None:
        self._recording.close()


def frame_at(recording: Recording, at_ms: int) -> Frame:
    """The newest frame not after a moment. Raises NotFound before the first, with when it was."""
    frame = recording.at(at_ms)
    if frame is None:
        raise _nothing(recording, at_ms)
    return frame


def _nothing(recording: Recording, at_ms: int | None = None) -> NotFound:
    kept = recording.span()
    if kept is None:
        return NotFound(
            "no frame was recorded in this home",
            hint="a Station records while it runs: k3ctl pod up",
        )
    first, last = local(kept[0] / 1000), local(kept[1] / 1000)
    when = "then" if at_ms is None else f"at {local(at_ms / 1000)} or before"
    return NotFound(
        f"no frame was recorded {when}", hint=f"there are frames from {first} to {last}"
    )
