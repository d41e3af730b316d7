"""Where a replay stands, and the keys that move it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from textual.binding import Binding

from k3ctl.tui.feed import Feed
from k3d.errors import ConfigError

STEP_S = 60
REPLAYED = (
    "this is a replay: what was recorded is shown, and there is no pod behind it to ask or change; "
    "leave it with q, then open the console on the running pod: k3ctl tui"
)
KEYS = (
    Binding("left_square_bracket", "step(-1)", "a frame back", show=False),
    Binding("right_square_bracket", "step(1)", "a frame on", show=False),
    Binding("left_curly_bracket", f"step({-STEP_S})", "a minute back", show=False),
    Binding("right_curly_bracket", f"step({STEP_S})", "a minute on", show=False),
    Binding("at", "prompt('@')", "to a time", key_display="@"),
    Binding("space", "play", "play"),
)

_CLOCK = re.compile(r"^(\d{1,2}):(\d{2})(?::(\d{2}))?$")


class Deck:
    """The moment shown, in Unix milliseconds, and whether it plays. Moves by asking a feed."""

    def __init__(self, feed: Feed, start_ms: int | None) -> None:
        self.at_ms = start_ms
        self.playing = False
        self._feed = feed

    def start(self) -> None:
        """Where it was told to, else at the end of the recording."""
        if self.at_ms is None:
            self._feed.tick()
        else:
            self.seek(self.at_ms)

    def tick(self) -> None:
        if self.playing:
            self.step(1)

    def step(self, by: int) -> None:
        """A frame back or on for -1 and 1; anything else is seconds."""
        if self.at_ms is None:
            return
        if by in (1, -1):
            self._feed.seek(self.at_ms + (0 if by > 0 else -1), onward=by > 0)
        else:
            self.at_ms += by * 1000
            self._feed.seek(self.at_ms)

    def seek(self, at_ms: int) -> None:
        self._feed.seek(at_ms)


def parse_moment(text: str, near_ms: int) -> int:
    """`03:12`, `03:12:09`, `-10m`, or an ISO time, in Unix milliseconds.

    A time of day is the one of the day shown. Raises ConfigError for anything else.
    """
    text = text.strip()
    near = datetime.fromtimestamp(near_ms / 1000).astimezone()
    if match := _CLOCK.match(text):
        hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
        if hour < 24 and minute < 60 and second < 60:
            moment = near.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return round(moment.timestamp() * 1000) + 999
    elif match := re.match(r"^([+-])(\d+)\s*([smhd])$", text):
        units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
        shift = timedelta(**{units[match[3]]: int(match[2])})
        moment = near + shift if match[1] == "+" else near - shift
        return round(moment.timestamp() * 1000)
    else:
        try:
            return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000) + 999
        except (ValueError, OverflowError):
            pass
    raise ConfigError(f"{text!r} is no time", hint="03:12, 03:12:09, -10m, 2026-01-31 03:12")
