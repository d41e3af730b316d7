"""Times as people write them: 6h, 90m, 2d, 03:12, 2026-11-29T03:12."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from k3d.errors import ConfigError

UNITS_S = {"w": 7 * 86_400, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
LONGEST_S = 10 * 365 * 86_400
EXAMPLES = "write 6h, 90m, 2d, 03:12, now, or a date as in 2026-11-29T03:12"

_NUMBER = r"(\d{1,9}(?:\.\d{1,6})?)"
# Each unit at most once, the largest first.
_AGO = re.compile(r"\s*".join(rf"(?:{_NUMBER}\s*{unit})?" for unit in UNITS_S), re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


@dataclass(frozen=True)
class Span:
    """A stretch of time in Unix seconds, `since_s` before `until_s`."""

    since_s: float
    until_s: float

    @property
    def length_s(self) -> float:
        return self.until_s - self.since_s


def moment(text: str, now_s: float) -> float:
    """The Unix second that a text means at `now_s`.

    A length is that long ago; a clock's time is the last time that the local clock showed it; a
    date without a zone is local. Raises ConfigError for anything else.
    """
    words = text.strip().lower()
    if words == "now":
        return now_s
    found = _ago(words)
    if found is not None:
        return now_s - found
    found = _clock(words, now_s)
    if found is not None:
        return found
    found = _date(text.strip())
    if found is not None:
        return found
    raise ConfigError(f"{text[:40]!r} is no time", hint=EXAMPLES)


def span(since: str, until: str, now_s: float) -> Span:
    """From one moment to another. Raises ConfigError unless the first is the earlier."""
    first, last = moment(since, now_s), moment(until, now_s)
    if first >= last:
        ended = f"--until {until}" if until.strip().lower() != "now" else "now"
        raise ConfigError(f"--since {since} is not before {ended}", hint=EXAMPLES)
    return Span(first, last)


def local(at_s: float, *, date: bool = True) -> str:
    """A Unix second on the local clock."""
    shown = datetime.fromtimestamp(at_s, UTC).astimezone()
    return f"{shown:%Y-%m-%d %H:%M:%S}" if date else f"{shown:%H:%M:%S}"


def length_of_time(seconds: float) -> str:
    """A stretch of time: 40 s, 12 min, 3 h 5 min, 2 d 4 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _ago(words: str) -> float | None:
    """The seconds of 6h, 1h30m, 2d."""
    found = _AGO.fullmatch(words)
    if found is None or not any(found.groups()):
        return None
    given = zip(found.groups(), UNITS_S.values(), strict=True)
    total = sum(float(number) * unit_s for number, unit_s in given if number)
    if total > LONGEST_S:
        raise ConfigError(f"{words[:40]!r} is longer than ten years", hint=EXAMPLES)
    return total


def _clock(words: str, now_s: float) -> float | None:
    found = _CLOCK.fullmatch(words)
    if found is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.groups())
    if hour > 23 or minute > 59 or second > 59:
        raise ConfigError(f"{words!r} is no time of a clock", hint=EXAMPLES)
    now = datetime.fromtimestamp(now_s, UTC).astimezone()
    shown = now.replace(tzinfo=None, hour=hour, minute=minute, second=second, microsecond=0)
    # Without a zone, so that yesterday's time is read with yesterday's offset.
    at_s = shown.astimezone().timestamp()
    return at_s if at_s <= now_s else (shown - timedelta(days=1)).astimezone().timestamp()


def _date(text: str) -> float | None:
    if not re.match(r"\d{4}-", text, re.ASCII):
        return None
    try:
        read = datetime.fromisoformat(text)
        return read.astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None
