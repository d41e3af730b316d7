"""A node's sensors, read once a second in threads that nobody waits for.

GPUs have a thread of their own: a driver in trouble may keep a call for a minute, and memory and
temperatures must not grow old with it. Whoever asks gets the last good values and their age.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from k3d.node.linux_sensors import LinuxSensors, Readings
from k3d.node.nvml import Devices, NvmlReader
from k3d.placement.pod import Node
from k3d.store.frame import Accelerator, Sensors

EVERY_S = 1.0
NO_GPU_EVERY_S = 30.0
"""How often to look whether there is a driver by now."""
SILENT_S = 3.0
"""After so long NVML is said not to answer."""
CLOSE_S = 0.2

log = logging.getLogger(__name__)


class NodeSensors:
    """`latest` answers at once, in any thread; None before the first reading."""

    def __init__(
        self,
        linux: LinuxSensors,
        library: Callable[[], Any],
        profile: str | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`library` gives pynvml, None without it; a `profile` says that its GPUs are made up."""
        self._linux = linux
        self._library = library
        self._profile = profile
        self._clock = clock
        self._readings: tuple[float, Readings] | None = None
        self._devices: tuple[float, Devices] | None = None
        self._asked_s = clock()  # NVML, last
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._read_linux, name="sensors", daemon=True),
            threading.Thread(target=self._read_nvml, name="nvml", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads; one that waits for a driver is left behind."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=CLOSE_S)

    def latest(self) -> Sensors | None:
        known, now = self._readings, self._clock()
        if known is None:
            return None
        read_s, readings = known
        accelerators, missing = self._accelerators(now)
        values: dict[str, Any] = readings.values
        return Sensors(
            age_s=round(now - read_s, 3),
            **values,
            accelerators=accelerators,
            missing={**readings.missing, **missing},
            simulated=self._profile is not None,
            profile=self._profile,
        )

    def _accelerators(self, now: float) -> tuple[tuple[Accelerator, ...], dict[str, str]]:
        silent_s = now - self._asked_s
        silence = {}
        if silent_s > SILENT_S:
            silence["accelerators"] = f"NVML has not answered for {silent_s:.0f} s"
        if self._devices is None:
            return (), silence or {"accelerators": "NVML was not asked yet"}
        read_s, devices = self._devices
        if now - read_s <= SILENT_S:
            return devices.found, {**devices.missing, **silence}
        age_s = round(now - read_s, 1)
        found = (msgspec.structs.replace(each, age_s=age_s) for each in devices.found)
        return tuple(found), {**devices.missing, **silence}

    def _read_linux(self) -> None:
        while True:
            try:
                self._readings = (self._clock(), self._linux.read())
            except Exception:
                log.exception("the sensors of this machine were not read")
            if self._stopping.wait(EVERY_S):
                return

    def _read_nvml(self) -> None:
        reader = NvmlReader(self._library(), self._linux.memory_bytes)
        while True:
            self._asked_s = self._clock()
            try:
                devices = reader.read()
                self._devices = (self._clock(), devices)
            except Exception:
                log.exception("the GPUs of this machine were not read")
                devices = None
            pause_s = EVERY_S if devices is not None and devices.found else NO_GPU_EVERY_S
            self._asked_s = self._clock() + pause_s  # not before: there is no call under way
            if self._stopping.wait(pause_s):
                return


def sensors_of(node: Node, home: Path) -> NodeSensors:
    """Of the machine this runs on. A simulated node whose `profile` can be made up gets its GPUs;
    every other has those that are there."""
    linux = LinuxSensors(home)
    if node.simulated and node.profile is not None:
        from k3d.node.fake_nvml import PROFILES, FakeNvml

        devices = PROFILES.get(node.profile)
        if devices is not None:
            return NodeSensors(linux, lambda: FakeNvml(devices()), node.profile)
    return NodeSensors(linux, _pynvml)


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
