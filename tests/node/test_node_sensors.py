"""A node's sensors: fresh, or as old as they say; nobody waits for a driver."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest

from k3d.node.fake_nvml import FakeNvml, gb10, h200
from k3d.node.linux_sensors import LinuxSensors
from k3d.node.node_sensors import NodeSensors, sensors_of
from k3d.placement.pod import Node, Tier
from k3d.store.frame import Sensors

SPARK = Node(name="spark-1", role="spark", tiers=(Tier("spark", 8),))
PATIENCE_S = 20.0


class Clock:
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return monotonic() + self.ahead_s


def wait(sensors: NodeSensors, condition: Any) -> Sensors:
    until_s, pause = monotonic() + PATIENCE_S, threading.Event()
    while True:
        found = sensors.latest()
        if found is not None and condition(found):
            return found
        assert monotonic() < until_s, found
        pause.wait(0.01)


def test_before_the_first_reading_there_is_none(home: Path) -> None:
    assert NodeSensors(LinuxSensors(home), lambda: None).latest() is None


def test_a_driver_that_hangs_ages_its_gpus_and_nothing_else(home: Path) -> None:
    held, clock = threading.Event(), Clock()
    release = threading.Event()
    library = FakeNvml([h200(0)])
    ask = library.__getattr__

    class Hanging:
        NVMLError = FakeNvml.NVMLError

        def __getattr__(self, name: str) -> Any:
            if name == "nvmlDeviceGetPowerUsage" and held.is_set():
                release.wait(PATIENCE_S)
            return getattr(library, name) if hasattr(FakeNvml, name) else ask(name)

    sensors = NodeSensors(LinuxSensors(home), Hanging, clock=clock)
    sensors.start()
    try:
        assert wait(sensors, lambda s: s.accelerators).accelerators[0].power_w == 318.0
        held.set()
        wait(sensors, lambda s: sum(c == "nvmlInit" for c in library.calls) == 1)
        clock.ahead_s = 60.0
        stale = wait(sensors, lambda s: "accelerators" in s.missing and s.age_s < 10)
        assert "has not answered for" in stale.missing["accelerators"]
        (device,) = stale.accelerators
        assert device.power_w == 318.0, "the last good value"
        assert device.age_s is not None
        assert device.age_s > 50
        assert stale.memory_bytes
        began_s = monotonic()
        sensors.close()
        assert monotonic() - began_s < 5.0
    finally:
        release.set()
        sensors.close()


def test_a_simulated_node_with_a_profile_shows_made_up_gpus_and_says_so(home: Path) -> None:
    node = msgspec.structs.replace(SPARK, simulated=True, profile="dgx-spark")
    sensors = sensors_of(node, home)
    sensors.start()
    try:
        found = wait(sensors, lambda s: s.accelerators)
    finally:
        sensors.close()
    assert (found.simulated, found.profile) == (True, "dgx-spark")
    assert found.accelerators[0].name == gb10().name


@pytest.mark.parametrize("fields", [{"profile": "dgx-spark"}, {"simulated": True}])
def test_no_other_node_is_given_gpus_that_are_not_there(home: Path, fields: dict[str, Any]) -> None:
    sensors = sensors_of(msgspec.structs.replace(SPARK, **fields), home)
    sensors.start()
    try:
        found = wait(sensors, lambda s: s.missing.get("accelerators") != "NVML was not asked yet")
    finally:
        sensors.close()
    assert not found.simulated
    assert all("simulated" not in (each.uuid or "") for each in found.accelerators)
