"""What a home recorded of a span of time: frames, hops, tokens, maps. Read-only, daemon or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from k3ctl.client.moments import Span, local
from k3d.errors import NotFound
from k3d.store.frame import Frame
from k3d.store.state import StateReader
from k3d.store.telemetry import (
    RETENTION,
    HopRollup,
    TokenRollup,
    read_hops,
    read_tokens,
)

MOST_FRAMES = 800
LEAST_SHOWN_S = 10.0
"""An axis of time that is shorter says nothing."""
# Widths that buckets can have, in seconds: each holds whole ones of those that are stored.
WIDTHS_S = (10, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 21_600, 86_400)


class Recording(Protocol):
    """Frames that were kept (k3ctl.client.frames.RecordedFrames)."""

    def span(self) -> tuple[int, int] | None: ...

    def at(self, at_ms: int) -> Frame | None: ...

    def after(self, at_ms: int) -> Frame | None: ...

    def between(self, first_ms: int, last_ms: int, most: int, /) -> Sequence[Frame]: ...

    def close(self) -> None: ...


class NothingRecorded:
    """The recording of a home that has none."""

    def span(self) -> tuple[int, int] | None:
        return None

    def at(self, at_ms: int) -> Frame | None:
        return None

    def after(self, at_ms: int) -> Frame | None:
        return None

    def between(self, first_ms: int, last_ms: int, most: int) -> Sequence[Frame]:
        return ()

    def close(self) -> None:
        """Nothing is held."""


def open_recording(home: Path) -> Recording:
    """The frames of a home. Raises StoreError for a damaged telemetry.db, ConfigError for one of a
    newer k3pod."""
    from k3ctl.client.frames import RecordedFrames

    try:
        return RecordedFrames(home)
    except NotFound:
        return NothingRecorded()


@dataclass(frozen=True)
class MapTurn:
    """A placement map coming into force."""

    at_s: float
    epoch: int
    policy: str


@dataclass(frozen=True)
class Records:
    """All that was recorded between two moments. `begins_s` is when the oldest record of the home
    begins, None when there is none; `shown` is the part of the span from then on, the whole of it
    where there is a record from before."""

    home: Path
    span: Span
    shown: Span
    frames: tuple[Frame, ...]
    hops: tuple[HopRollup, ...]
    tokens: tuple[TokenRollup, ...]
    turns: tuple[MapTurn, ...]
    begins_s: float | None
    now_s: float

    @property
    def empty(self) -> bool:
        return not (self.frames or self.hops or self.tokens)

    @property
    def pod(self) -> str:
        """The pod's name in the newest frame."""
        return self.frames[-1].pod if self.frames else "pod"

    def width_s(self, most: int) -> int:
        """The finest bucket that all records of the span have, of which `most` cover it."""
        age = self.now_s - self.shown.since_s
        kept = [step.span_s for step in RETENTION if age <= step.keep_s]
        least = max(min(kept, default=RETENTION[-1].span_s), self.shown.length_s / most)
        return next((width for width in WIDTHS_S if width >= least), WIDTHS_S[-1])

    def require(self, what: str) -> None:
        """Raise NotFound, with when there is something, if nothing was recorded."""
        if not self.empty:
            return
        since, until = local(self.span.since_s), local(self.span.until_s)
        if self.begins_s is None:
            raise NotFound(
                f"no {what} was recorded in {self.home}",
                hint="a Station records while it runs: k3ctl pod up",
            )
        raise NotFound(
            f"no {what} was recorded from {since} to {until}",
            hint=f"the records begin {local(self.begins_s)}: --since '{local(self.begins_s)}'",
        )


def read_records(
    home: Path, span: Span, recording: Recording, now_s: float, most_frames: int = MOST_FRAMES
) -> Records:
    """Raises StoreError when a database is damaged; a home without one has no records."""
    first_ms, last_ms = round(span.since_s * 1000), round(span.until_s * 1000)
    try:
        all_hops, all_tokens = read_hops(home), read_tokens(home)
    except NotFound:
        all_hops, all_tokens = [], []
    kept = recording.span()
    frames = tuple(recording.between(first_ms, last_ms, most_frames))
    starts = [rollup.bucket_s for rollup in (*all_hops[:1], *all_tokens[:1])]
    starts += [kept[0] / 1000] if kept else []
    begins_s = min(starts, default=None)
    return Records(
        home=home,
        span=span,
        shown=_from_the_beginning(span, begins_s),
        frames=frames,
        hops=tuple(hop for hop in all_hops if _within(hop.bucket_s, span)),
        tokens=tuple(token for token in all_tokens if _within(token.bucket_s, span)),
        turns=_turns(home, first_ms, last_ms),
        begins_s=begins_s,
        now_s=now_s,
    )


def _from_the_beginning(span: Span, begins_s: float | None) -> Span:
    """The span without the time before the oldest record, where that is enough to be seen."""
    seen_s = span.since_s + span.length_s / 100
    if begins_s is None or not seen_s < begins_s <= span.until_s:
        return span
    latest_s = max(span.since_s, span.until_s - LEAST_SHOWN_S)
    return Span(min(float(math.floor(begins_s)), latest_s), span.until_s)


def _within(bucket_s: int, span: Span) -> bool:
    return span.since_s <= bucket_s <= span.until_s


def _turns(home: Path, first_ms: int, last_ms: int) -> tuple[MapTurn, ...]:
    try:
        with StateReader.open(home) as reader:
            rows = reader.rows(
                "SELECT ts_ms, epoch, policy FROM placement_map "
                "WHERE ts_ms BETWEEN ? AND ? ORDER BY epoch",
                (first_ms, last_ms),
            )
    except NotFound:
        return ()
    return tuple(MapTurn(at_ms / 1000, epoch, policy) for at_ms, epoch, policy in rows)
