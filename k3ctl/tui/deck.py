"""Where a replay stands, and the keys that move it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from k3d.errors import ConfigError

STEP_S = 60

_CLOCK = re.compile(r"^(\d{1,2}):(\d{2})(?::(\d{2}))?$")


class Deck:
    """The moment shown, in Unix milliseconds, and whether it plays."""

    def __init__(self, start_ms: int | None) -> None:
        self.at_ms = start_ms
        self.playing = False


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
