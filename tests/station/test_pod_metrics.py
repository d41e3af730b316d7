"""Metrics of the pod: what is not measured has no sample."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from k3d.errors import StoreError
from k3d.station.pod_metrics import PodMetrics
from k3d.store.frame import Accelerator, Frame, NodeFrame, Sensors, SwapFrame
from k3d.store.swap_totals import SwapTotals

TOTALS = SwapTotals({"done": 3, "failed": 1, "cancelled": 0}, 4096)


def frame(**fields: Any) -> Frame:
    device = Accelerator(name="GB10", index=0, power_w=40.0, clock_mhz=2190.0)
    nodes = (
        NodeFrame(name="station", role="station", state="healthy"),
        NodeFrame(
            name="spark-1",
            role="spark",
            state="down",
            sensors=Sensors(age_s=2.0, temperature_c=61.0, accelerators=(device,), simulated=True),
        ),
    )
    return Frame(
        at_ms=0, sequence=0, interval_s=1, pod="x", state="degraded", nodes=nodes, **fields
    )


def samples(one: Frame, totals: SwapTotals | None = TOTALS) -> dict[str, float]:
    def swaps() -> SwapTotals:
        if totals is None:
            raise StoreError("state.db is damaged")
        return totals

    registry = CollectorRegistry()
    registry.register(PodMetrics(lambda: one, swaps))
    lines = generate_latest(registry).decode().splitlines()
    found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in found}


def test_what_a_node_measures_is_there_and_nothing_else() -> None:
    found = samples(frame())
    assert found['k3_node_temperature_celsius{node="spark-1",simulated="true"}'] == 61.0
    assert found['k3_reading_age_seconds{node="spark-1",simulated="true"}'] == 2.0
    labels = 'node="spark-1",simulated="true",accelerator="0"'
    by_label = {name: value for name, value in found.items() if name.startswith("k3_accelerator")}
    assert len(by_label) == 2, "a GB10 tells neither its limit nor, here, its temperature"
    assert set(by_label.values()) == {40.0, 2190e6}
    assert all('accelerator="0"' in name for name in by_label), labels
    assert not any(name.startswith("k3_node_power_watts") for name in found)
    assert not any("station" in name for name in found if "k3_node_temperature" in name)


def test_a_node_is_in_one_state() -> None:
    found = {k: v for k, v in samples(frame()).items() if k.startswith("k3_node_state")}
    assert len(found) == 6
    assert sum(found.values()) == 2
    assert found['k3_node_state{node="spark-1",state="down"}'] == 1


def test_swaps_are_counted_by_their_end_and_a_pause_shows() -> None:
    found = samples(frame())
    assert found['k3_swap_total{result="done"}'] == 3
    assert (found["k3_swap_bytes_total"], found["k3_swap_paused"]) == (4096, 0)
    swap = SwapFrame(
        intent="a", to="b", phase="staging", wave=1, waves=1, copied_bytes=1, size_bytes=2,
        paused="hops are slow",
    )  # fmt: skip
    assert samples(frame(swap=swap))["k3_swap_paused"] == 1


def test_a_damaged_state_db_takes_only_its_own_samples_along() -> None:
    found = samples(frame(), totals=None)
    assert "k3_swap_bytes_total" not in found
    assert "k3_swap_paused" in found
