"""Figures over time, as values: series of one unit on a chart, charts of one history."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from k3ctl.client.moments import Span
from k3d.store.frame import Frame

Point = tuple[float, float | None]
# Frames further apart than this many times their usual distance have a gap between them.
GAP_INTERVALS = 3.0


@dataclass(frozen=True)
class Series:
    """One line: points of (Unix second, figure in the chart's unit); None is a gap."""

    name: str
    points: tuple[Point, ...]
    provenance: str = "measured"

    @property
    def known(self) -> tuple[float, ...]:
        return tuple(value for _, value in self.points if value is not None)


@dataclass(frozen=True)
class Chart:
    """Series that share a unit. `missing` says why some have no figures, name -> sentence."""

    key: str
    title: str
    unit: str
    series: tuple[Series, ...]
    missing: tuple[tuple[str, str], ...] = ()
    from_zero: bool = True
    """Whether 0 is none of it: of degrees it is not."""

    @property
    def known(self) -> bool:
        return any(line.known for line in self.series)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.key,
            "title": self.title,
            "unit": self.unit,
            "series": [
                {
                    "name": line.name,
                    "unit": self.unit,
                    "provenance": line.provenance,
                    "points": [[round(at * 1000), value] for at, value in line.points],
                }
                for line in self.series
            ],
            "missing": dict(self.missing),
        }


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment of a history."""

    at_s: float
    label: str

    def as_json(self) -> dict[str, Any]:
        return {"at_ms": round(self.at_s * 1000), "label": self.label}


@dataclass(frozen=True)
class History:
    """Charts over one span, what their points stand for and what happened meanwhile.

    `asked` is the span that was asked for; it begins before `span` where nothing was recorded yet.
    `bucket_s` is the width of a point of the rolled-up figures, None where there are none.
    """

    what: str
    pod: str
    span: Span
    charts: tuple[Chart, ...]
    marks: tuple[Mark, ...]
    bucket_s: int | None
    provenance: str
    definition: str
    asked: Span
    simulated: tuple[str, ...] = ()
    """Tiers whose memory, or nodes whose sensors, are simulated."""

    @property
    def cut(self) -> bool:
        """Whether the records begin later than was asked for."""
        return self.span.since_s > self.asked.since_s

    @property
    def empty(self) -> bool:
        return not any(chart.known for chart in self.charts)

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "pod": self.pod,
            "since_ms": round(self.asked.since_s * 1000),
            "begins_ms": round(self.span.since_s * 1000),
            "until_ms": round(self.span.until_s * 1000),
            "bucket_s": self.bucket_s,
            "provenance": self.provenance,
            "simulated": list(self.simulated),
            "definition": self.definition,
            "charts": [chart.as_json() for chart in self.charts],
            "marks": [
                {"at_ms": round(mark.at_s * 1000), "label": mark.label} for mark in self.marks
            ],
        }


class Timeline:
    """The moments of frames, with a gap wherever some are missing."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames
        usual_s = _usual_distance_s(frames)
        self._places: list[tuple[float, int | None]] = []
        before_s: float | None = None
        for number, frame in enumerate(frames):
            at_s = frame.at_ms / 1000
            farthest_s = GAP_INTERVALS * max(usual_s, frame.interval_s)
            if before_s is not None and at_s - before_s > farthest_s:
                self._places.append(((before_s + at_s) / 2, None))
            self._places.append((at_s, number))
            before_s = at_s

    def series(self, name: str, values: Sequence[float | None], provenance: str) -> Series:
        """A line of one value a frame."""
        points = (
            (at_s, None if number is None else values[number]) for at_s, number in self._places
        )
        return Series(name, tuple(points), provenance)


def from_buckets(
    name: str,
    span: Span,
    width_s: int,
    values: dict[int, float],
    provenance: str = "measured",
) -> Series:
    """A figure of every bucket of the span, at its middle. `values` are by the bucket's number,
    its start / width; one without a value is a gap."""
    numbers = range(int(span.since_s // width_s), int(span.until_s // width_s) + 1)
    points = ((n * width_s + width_s / 2, values.get(n)) for n in numbers)
    inside = ((min(max(at, span.since_s), span.until_s), value) for at, value in points)
    return Series(name, tuple(inside), provenance)


def provenance_of(simulated: bool) -> str:
    return "simulated" if simulated else "measured"


def joined_provenance(charts: Iterable[Chart]) -> str:
    """The labels of all series that have figures, in one phrase."""
    found = {line.provenance for chart in charts for line in chart.series if line.known}
    return ", ".join(sorted(found)) or "measured"


def _usual_distance_s(frames: Sequence[Frame]) -> float:
    """The median time between two frames."""
    distances = sorted(
        (after.at_ms - before.at_ms) / 1000 for before, after in itertools.pairwise(frames)
    )
    return distances[len(distances) // 2] if distances else 0.0
