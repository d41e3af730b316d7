"""What the console remembers of the frames it has seen: ten minutes of a few figures.

Rings of a fixed size, so that its memory does not grow with time. What was not known at a moment
is a gap there, never 0.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence

from k3d.store.frame import Frame, NodeFrame

LENGTH = 600
NODE_LENGTH = 120

Value = float | None

POD_FIGURES: dict[str, Callable[[Frame], Value]] = {
    "decode_tokens_per_s": lambda frame: frame.decode_tokens_per_s,
    "prompt_tokens_per_s": lambda frame: frame.prompt_tokens_per_s,
    "token_p50_us": lambda frame: frame.token_p50_us,
    "token_p99_us": lambda frame: frame.token_p99_us,
    "acceptance_length": lambda frame: frame.acceptance_length,
    "running": lambda frame: float(frame.running),
    "power_w": lambda frame: pod_power_w(frame),
}
NODE_FIGURES: dict[str, Callable[[NodeFrame], Value]] = {
    "power_w": lambda node: node_power_w(node),
    "temperature_c": lambda node: node_temperature_c(node),
    "clock_mhz": lambda node: node_clock_mhz(node),
    "hop_p50_us": lambda node: node.hop_p50_us,
    "hop_p99_us": lambda node: node.hop_p99_us,
}


class Trail:
    """Figures of past frames, oldest first. Belongs to the thread that draws."""

    def __init__(self) -> None:
        self._times = _Ring(LENGTH)
        self._pod = {name: _Ring(LENGTH) for name in POD_FIGURES}
        self._tiers: dict[tuple[str, str], _Ring] = {}
        self._nodes: dict[str, dict[str, _Ring]] = {}
        self._count = 0

    def clear(self) -> None:
        self.__init__()

    def add(self, frame: Frame) -> None:
        """Remember a frame; one that is not newer than the last is ignored."""
        last = self._times.last()
        if last is not None and frame.at_ms / 1000 <= last:
            return
        self._count += 1
        self._times.add(frame.at_ms / 1000)
        for name, figure in POD_FIGURES.items():
            self._pod[name].add(figure(frame))
        for tier in frame.tiers:
            for name, value in (("p50", tier.hop_p50_us), ("p99", tier.hop_p99_us)):
                self._ring((tier.name, name)).add(value)
        present = {node.name for node in frame.nodes}
        for gone in self._nodes.keys() - present:
            del self._nodes[gone]
        for node in frame.nodes:
            rings = self._nodes.get(node.name)
            if rings is None:
                rings = {name: _Ring(NODE_LENGTH) for name in NODE_FIGURES}
                self._nodes[node.name] = rings
            for name, figure in NODE_FIGURES.items():
                rings[name].add(figure(node))

    def pod(self, figure: str, most: int | None = None) -> list[Value]:
        """A figure of POD_FIGURES, the newest `most`."""
        return self._pod[figure].values(most)

    def tier(self, tier: str, figure: str, most: int | None = None) -> list[Value]:
        """p50 or p99 of a tier's hops, in microseconds."""
        ring = self._tiers.get((tier, figure))
        return [] if ring is None else ring.values(most)

    def tiers(self) -> list[str]:
        """Tiers that were seen, in the order of frames."""
        return list(dict.fromkeys(tier for tier, _ in self._tiers))

    def node(self, node: str, figure: str, most: int | None = None) -> list[Value]:
        """A figure of NODE_FIGURES of one node."""
        rings = self._nodes.get(node)
        return [] if rings is None else rings[figure].values(most)

    def points(self, figure: str) -> list[tuple[float, Value]]:
        """A figure of the pod over time: (Unix seconds, value), oldest first."""
        times = self._times.values()
        return [(time or 0.0, value) for time, value in zip(times, self.pod(figure), strict=True)]

    def tier_points(self, tier: str, figure: str) -> list[tuple[float, Value]]:
        """p50 or p99 of a tier over time, from when the tier was first seen."""
        values = self.tier(tier, figure)
        times = self._times.values(len(values))
        return [(time or 0.0, value) for time, value in zip(times, values, strict=True)]

    def _ring(self, key: tuple[str, str]) -> _Ring:
        if key not in self._tiers:
            self._tiers[key] = _Ring(LENGTH)
        return self._tiers[key]


class _Ring:
    """The newest values of one figure, NaN where there was none."""

    __slots__ = ("_at", "_held", "_size", "_values")

    def __init__(self, size: int) -> None:
        self._values = array("d", [math.nan]) * size
        self._size = size
        self._at = 0
        self._held = 0

    def add(self, value: Value) -> None:
        self._values[self._at] = math.nan if value is None else value
        self._at = (self._at + 1) % self._size
        self._held = min(self._size, self._held + 1)

    def last(self) -> Value:
        if not self._held:
            return None
        value = self._values[self._at - 1]
        return None if math.isnan(value) else value

    def values(self, most: int | None = None) -> list[Value]:
        count = self._held if most is None else min(most, self._held)
        start = (self._at - count) % self._size
        found = self._values[start : start + count]
        if len(found) < count:
            found += self._values[: count - len(found)]
        return [None if math.isnan(value) else value for value in found]


def total(values: Sequence[Value]) -> Value:
    """A sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def node_power_w(node: NodeFrame) -> Value:
    """Of the whole node where it is measured, else of its accelerators together."""
    if node.sensors is None:
        return None
    if node.sensors.power_w is not None:
        return node.sensors.power_w
    return total([each.power_w for each in node.sensors.accelerators])


def node_temperature_c(node: NodeFrame) -> Value:
    """The hottest of its sensors and accelerators."""
    if node.sensors is None:
        return None
    values = [node.sensors.temperature_c, *(a.temperature_c for a in node.sensors.accelerators)]
    return max((value for value in values if value is not None), default=None)


def node_clock_mhz(node: NodeFrame) -> Value:
    """Of its slowest accelerator, which the others wait for; else of the node."""
    if node.sensors is None:
        return None
    clocks = [a.clock_mhz for a in node.sensors.accelerators if a.clock_mhz is not None]
    return min(clocks) if clocks else node.sensors.clock_mhz


def pod_power_w(frame: Frame) -> Value:
    """Of the nodes that report it."""
    return total([node_power_w(node) for node in frame.nodes])
