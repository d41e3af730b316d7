"""What has come from the source of frames, when, and how the source does since."""

from __future__ import annotations

import time

from k3ctl.tui.feed import Feed, Fetched
from k3ctl.tui.snapshot import Snapshot, Source
from k3d.errors import K3Error
from k3d.store.frame import Frame

LATE_INTERVALS = 2.0


class Arrivals:
    """Makes snapshots of the last good frame. `replayed` frames do not age."""

    def __init__(self, feed: Feed, interval_s: float, *, replayed: bool) -> None:
        self.paused = False
        self._feed = feed
        self._interval_s = interval_s
        self._replayed = replayed
        self._frame_at_s: float | None = None
        self._error: K3Error | None = None

    def take(self, message: Fetched) -> None:
        """A frame ends an error; an error leaves the frame that was there."""
        if message.frame is not None:
            self._error = None
            self._frame_at_s = time.monotonic()
        elif message.error is not None:
            self._error = message.error

    @property
    def overdue(self) -> bool:
        """Whether the last frame, or the lack of one, has to be shown growing older."""
        return self._frame_at_s is None or self._late or self._error is not None

    def snapshot(self, old: Snapshot, frame: Frame | None = None) -> Snapshot:
        """The snapshot of now; with a new frame, or the last one grown older."""
        age_s = 0.0
        if frame is None and self._frame_at_s is not None and not self._replayed:
            age_s = time.monotonic() - self._frame_at_s
        error = self._error
        reason, hint = (None, None) if error is None else (error.message, error.hint)
        source = self._source
        if source == "late":
            reason = f"the Station has not answered for {self._feed.open_s or age_s:.0f} s"
        return Snapshot(
            frame=frame or old.frame,
            age_s=age_s,
            source=source,
            interval_s=self._interval_s,
            number=old.number + (frame is not None),
            reason=reason,
            hint=hint,
        )

    @property
    def _source(self) -> Source:
        if self._replayed:
            return "replay"
        if self.paused:
            return "paused"
        if self._error is not None:
            return "lost"
        if self._late:
            return "late"
        return "connecting" if self._frame_at_s is None else "live"

    @property
    def _late(self) -> bool:
        open_s = self._feed.open_s
        return open_s is not None and open_s > LATE_INTERVALS * self._interval_s
