"""Sensors over time: every node side by side, or one node with its accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3ctl.client.records import Records
from k3ctl.client.series import Chart, Series, Timeline, provenance_of
from k3d.errors import NotFound
from k3d.store.frame import Sensors

GIB = 1 << 30


@dataclass(frozen=True)
class Figure:
    """A figure of `Sensors`, and of an accelerator where that has it; shown in units of `one`."""

    key: str
    title: str
    unit: str
    one: float = 1.0
    from_zero: bool = True

    def of(self, device: object) -> float | None:
        value = getattr(device, self.key, None)
        return None if value is None else value / self.one


FIGURES = (
    Figure("power_w", "power", "W"),
    Figure("temperature_c", "temperature", "°C", from_zero=False),
    Figure("busy_share", "load", "%", 0.01),
    Figure("memory_used_bytes", "memory in use", "GiB", GIB),
    Figure("clock_mhz", "clock", "MHz"),
)

Moments = Sequence[Mapping[str, Sensors]]


def sensor_charts(records: Records, only: str | None) -> list[Chart]:
    """A chart for each kind of sensor, of every node or of one and its accelerators; why some had
    no figures is in `missing`. Raises NotFound for a node that was not recorded."""
    names = list(
        dict.fromkeys(node.name for frame in reversed(records.frames) for node in frame.nodes)
    )
    if only is not None and only not in names:
        raise NotFound(
            f"no node {only!r} was recorded then", hint=f"nodes: {', '.join(names) or 'none'}"
        )
    moments = [
        {node.name: node.sensors for node in frame.nodes if node.sensors is not None}
        for frame in records.frames
    ]
    newest = {name: sensors for moment in moments for name, sensors in moment.items()}
    timeline = Timeline(records.frames)
    charts = []
    for figure in FIGURES:
        lines = [
            _of_node(timeline, moments, newest, name, figure)
            for name in (names if only is None else [only])
        ]
        if only is not None and only in newest:
            lines += _of_accelerators(timeline, moments, newest[only], only, figure)
        missing = tuple(
            (line.name, newest[line.name].missing[figure.key])
            for line in lines
            if not line.known and line.name in newest and figure.key in newest[line.name].missing
        )
        known = _known_ones(lines)
        charts.append(
            Chart(figure.key, figure.title, figure.unit, known, missing, figure.from_zero)
        )
    return charts


def _of_node(
    timeline: Timeline, moments: Moments, newest: Mapping[str, Sensors], name: str, figure: Figure
) -> Series:
    values = [figure.of(moment[name]) if name in moment else None for moment in moments]
    return timeline.series(name, values, provenance_of(_simulated(newest.get(name))))


def _of_accelerators(
    timeline: Timeline, moments: Moments, newest: Sensors, name: str, figure: Figure
) -> list[Series]:
    """Each accelerator that the newest sensors have, by number and name."""
    lines = []
    for number, accelerator in enumerate(newest.accelerators):
        values: list[float | None] = []
        for moment in moments:
            found = moment[name].accelerators if name in moment else ()
            values.append(figure.of(found[number]) if number < len(found) else None)
        label = f"{number} {accelerator.name}"
        lines.append(timeline.series(label, values, provenance_of(newest.simulated)))
    return lines


def _simulated(sensors: Sensors | None) -> bool:
    return sensors is not None and sensors.simulated


def _known_ones(lines: Sequence[Series]) -> tuple[Series, ...]:
    """Those with figures; all of them when none has."""
    return tuple(line for line in lines if line.known) or tuple(lines)
