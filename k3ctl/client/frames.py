"""Frames for whoever draws: of a running Station, or of what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from k3d.errors import K3Error, NotFound
from k3d.store.frame import Frame, decode
from k3d.store.frame_history import FrameHistory

FRAME_S = 2.0
"""How long a frame may take to come; the Station has it ready."""


class FrameSource(Protocol):
    """Where the newest frame comes from."""

    def latest(self) -> Frame:
        """Raises FabricError, NodeLost or TimedOut where the Station does not answer, NotFound
        where nothing was recorded."""
        ...


class LiveFrames:
    """The running Station of a home; one thread. It is looked up again after it was lost, since a
    restarted one has another port."""

    def __init__(self, home: Path, *, timeout_s: float = FRAME_S) -> None:
        self._home = home
        self._timeout_s = timeout_s
        self._daemon: Any = None

    def latest(self) -> Frame:
        return decode(self._ask(lambda daemon: daemon.frame()))

    def expert_use(self) -> dict[str, Any]:
        """The document of GET /experts."""
        return self._ask(lambda daemon: daemon.experts())

    def events(self, since_id: int = 0, limit: int = 200) -> list[dict[str, Any]]:
        """The newest events after number `since_id`, oldest first."""
        return self._ask(lambda daemon: daemon.events(since_id=since_id, limit=limit))

    def lanes(self) -> list[dict[str, Any]]:
        """Lanes and waiting requests as they are now, as LaneFrame's keys."""
        return self._ask(lambda daemon: daemon.lanes())

    def cancel(self, request_id: str) -> dict[str, Any]:
        """End a request. Raises NotFound for one that is neither in a lane nor waiting."""
        return self._ask(lambda daemon: daemon.cancel(request_id))

    def close(self) -> None:
        if self._daemon is not None:
            self._daemon.close()
            self._daemon = None

    def _ask(self, what: Any) -> Any:
        from k3ctl.client.daemon import Daemon  # httpx takes a while to import

        if self._daemon is None:
            self._daemon = Daemon.station_of(self._home, timeout_s=self._timeout_s)
        try:
            return what(self._daemon)
        except K3Error as error:
            if error.retryable:
                self.close()
            raise


class RecordedFrames:
    """What telemetry.db holds of a home; needs no daemon. One thread."""

    def __init__(self, home: Path) -> None:
        """Raises NotFound where nothing was recorded, ConfigError, StoreError."""
        self._history = FrameHistory.open(home)
        self._home = home

    def latest(self) -> Frame:
        """The last frame recorded."""
        span = self.span()
        frame = self.at(span[1]) if span is not None else None
        if frame is None:
            raise NotFound(f"no frame was recorded in {self._home}", hint="start: k3ctl pod up")
        return frame

    def span(self) -> tuple[int, int] | None:
        """Unix milliseconds of the first and the last frame; None of none."""
        return self._history.span()

    def at(self, at_ms: int) -> Frame | None:
        """The newest frame that is not after `at_ms`."""
        return self._history.at(at_ms)

    def after(self, at_ms: int) -> Frame | None:
        """The first frame after `at_ms`."""
        return self._history.after(at_ms)

    def between(self, first_ms: int, last_ms: int, most: int = 400) -> list[Frame]:
        """At most `most` frames, oldest first. Where seconds are gone or too many, a frame stands
        for `interval_s` of them."""
        return self._history.between(first_ms, last_ms, most)

    def close(self) -> None:
        self._history.close()
