"""Where an axis begins, ends and has its marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LARGEST = 1e300  # beyond it, and below its inverse, differences are no floats any more
# Below this share of its ends a span is rounding, not a difference.
FLAT = 1e-12

MINUTE, HOUR, DAY, YEAR = 60, 3_600, 86_400, 365 * 86_400
TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    *(DAY * n for n in (1, 2, 7, 14, 30, 90, 180)),
)


@dataclass(frozen=True)
class Tick:
    """One mark of an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """`first` < `last`; the ticks lie between them."""

    first: float
    last: float
    ticks: tuple[Tick, ...] = ()

    def share(self, value: float) -> float:
        """How far along a value lies, 0 to 1."""
        length = self.last / 2 - self.first / 2  # halves: the whole may be too large for a float
        return min(1.0, max(0.0, (value / 2 - self.first / 2) / length))


def finite(value: float | None) -> float | None:
    """The value as charts can draw it; None when it is not available."""
    if value is None or not math.isfinite(value):
        return None
    if abs(value) < 1 / LARGEST:
        return 0.0
    return max(-LARGEST, min(LARGEST, float(value)))


def value_axis(values: Iterable[float | None], most_ticks: int, *, from_zero: bool = True) -> Axis:
    """An axis that ends at round numbers and holds every value, and 0 unless told otherwise."""
    known = [number for value in values if (number := finite(value)) is not None]
    if from_zero or not known:
        known.append(0.0)
    first, last = min(known), max(known)
    widest = max(abs(first), abs(last))
    if widest == 0:
        first, last = 0.0, 1.0
    elif last - first <= widest * FLAT:
        first, last = first - widest / 10, last + widest / 10
    step = _step(first, last, max(2, most_ticks))
    low, high = math.floor(first / step + FLAT), math.ceil(last / step - FLAT)
    ticks = tuple(Tick(n * step, _label(n * step, step)) for n in range(low, high + 1))
    return Axis(min(first, ticks[0].at), max(last, ticks[-1].at), ticks)


def plain_axis(values: Sequence[float], most_ticks: int) -> Axis:
    """An axis exactly from the least value to the largest, with round ticks between."""
    first, last = min(values), max(values)
    widest = max(abs(first), abs(last))
    if last - first <= widest * FLAT or last - first < 1 / LARGEST:
        half = max(0.5, widest / 2)
        return Axis(first - half, last + half, (Tick(first, f"{first:g}"),))
    step = _step(first, last, max(2, most_ticks))
    low, high = math.ceil(first / step - FLAT), math.floor(last / step + FLAT)
    round_ones = [n * step for n in range(low, high + 1)]
    inside = [(min(last, max(first, at)), _label(at, step)) for at in round_ones]
    return Axis(first, last, tuple(Tick(at, label) for at, label in inside))


def time_axis(first_s: float, last_s: float, most_ticks: int) -> Axis:
    """An axis of local time between two Unix seconds, with ticks on the clock's round times."""
    if last_s - first_s < 1:
        first_s, last_s = first_s - 0.5, first_s + 0.5
    span = last_s - first_s
    most = max(1, most_ticks)
    years = YEAR * math.ceil(span / most / YEAR)
    step = next((step for step in TIME_STEPS_S if span / step <= most), years)
    # Round times are the local clock's: an hour of a zone that is 5:30 ahead is no UTC hour.
    offset = datetime.fromtimestamp(first_s, UTC).astimezone().utcoffset()
    ahead = offset.total_seconds() if offset is not None else 0.0
    low, high = math.ceil((first_s + ahead) / step), math.floor((last_s + ahead) / step)
    times = [n * step - ahead for n in range(low, high + 1)]
    inside = [at for at in times if first_s <= at <= last_s]
    return Axis(first_s, last_s, tuple(Tick(at, clock(at, step)) for at in inside))


def clock(at_s: float, step_s: float = MINUTE) -> str:
    """A Unix second on the local clock, as finely as a step of `step_s` wants."""
    local = datetime.fromtimestamp(at_s, UTC).astimezone()
    if step_s >= DAY:
        return f"{local.day} {local:%b}"
    return f"{local:%H:%M:%S}" if step_s < MINUTE else f"{local:%H:%M}"


def _step(first: float, last: float, most: int) -> float:
    """The smallest round step with at most `most` ticks from first to last, ends rounded out."""
    rough = max(last / most - first / most, 5e-324)
    power = 10.0 ** max(-307, math.floor(math.log10(rough)))
    for factor in (1.0, 10.0, 100.0):
        for step in STEPS[:-1]:
            width = step * power * factor
            count = math.ceil(last / width - FLAT) - math.floor(first / width + FLAT) + 1
            if count <= most:
                return width
    return 100 * STEPS[-1] * power


def _label(value: float, step: float) -> str:
    """The value with the digits that its step has."""
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or step < 1e-4:
        return f"{value:.4g}"
    digits = max(0, -math.floor(math.log10(step) + FLAT))
    if abs(step * 10**digits - round(step * 10**digits)) > 1e-6:
        digits += 1  # 2.5 has one more than 1 has
    return f"{value:,.{digits}f}"
