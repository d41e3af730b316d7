"""Prometheus metrics of the pod around the engine: nodes, their sensors, swaps.

They are read off the newest frame. What a node does not measure has no sample: 0 W would be a lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from k3d.errors import StoreError
from k3d.store.frame import Frame
from k3d.store.swap_totals import SwapTotals

NODE_STATES = ("healthy", "degraded", "down")
_NODE = ("node", "simulated")
_ACCELERATOR = (*_NODE, "accelerator")


class PodMetrics(Collector):
    """`frame` gives the newest; `swaps` what state.db counts, or raises StoreError."""

    def __init__(self, frame: Callable[[], Frame], swaps: Callable[[], SwapTotals]) -> None:
        self._frame = frame
        self._swaps = swaps

    def describe(self) -> list[Metric]:
        """Nothing: names are known without a frame, and there may be none yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        frame = self._frame()
        yield from _nodes(frame)
        yield from _sensors(frame)
        yield from _accelerators(frame)
        yield from self._swap_metrics(frame)

    def _swap_metrics(self, frame: Frame) -> Iterator[Metric]:
        paused = GaugeMetricFamily(
            "k3_swap_paused", "1 while a swap of the placement map is paused, else 0."
        )
        paused.add_metric((), float(frame.swap is not None and frame.swap.paused is not None))
        yield paused
        try:
            totals = self._swaps()
        except StoreError:
            return
        ended = CounterMetricFamily(
            "k3_swap", "Swaps of the placement map by how they ended.", labels=("result",)
        )
        for result, count in totals.ended.items():
            ended.add_metric((result,), count)
        yield ended
        copied = CounterMetricFamily("k3_swap_bytes", "Bytes that swaps copied.")
        copied.add_metric((), totals.copied_bytes)
        yield copied


def _nodes(frame: Frame) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "k3_node_state", "1 for the state that the node is in.", labels=("node", "state")
    )
    for node in frame.nodes:
        for state in NODE_STATES:
            family.add_metric((node.name, state), float(node.state == state))
    yield family


def _sensors(frame: Frame) -> Iterator[Metric]:
    found = [(n.name, n.sensors) for n in frame.nodes if n.sensors is not None]
    for name, what, key in (
        ("k3_node_power_watts", "Drawn by the whole node.", "power_w"),
        ("k3_node_processor_power_watts", "Drawn by the node's processors.", "cpu_power_w"),
        ("k3_node_temperature_celsius", "The node's hottest sensor.", "temperature_c"),
        ("k3_node_memory_used_bytes", "All but what is available.", "memory_used_bytes"),
        ("k3_node_memory_bytes", "The node's memory.", "memory_bytes"),
        ("k3_node_disk_free_bytes", "Of the file system with its home.", "disk_free_bytes"),
        ("k3_reading_age_seconds", "Since the node's sensors were read.", "age_s"),
    ):
        family = GaugeMetricFamily(name, what, labels=_NODE)
        for node, sensors in found:
            value = getattr(sensors, key)
            if value is not None:
                family.add_metric((node, _label(sensors.simulated)), value)
        yield family


def _accelerators(frame: Frame) -> Iterator[Metric]:
    for name, what, key in (
        ("k3_accelerator_power_watts", "Drawn by a GPU.", "power_w"),
        ("k3_accelerator_power_limit_watts", "What it may draw.", "power_cap_w"),
        ("k3_accelerator_temperature_celsius", "Of the GPU.", "temperature_c"),
        ("k3_accelerator_clock_hertz", "Of its multiprocessors.", "clock_mhz"),
    ):
        family = GaugeMetricFamily(name, what, labels=_ACCELERATOR)
        for node in frame.nodes:
            for each in node.sensors.accelerators if node.sensors is not None else ():
                value = getattr(each, key)
                if value is not None and node.sensors is not None:
                    labels = (node.name, _label(node.sensors.simulated), str(each.index))
                    family.add_metric(labels, value * 1e6 if key == "clock_mhz" else value)
        yield family


def _label(simulated: bool) -> str:
    return "true" if simulated else "false"
