"""GPUs that are not there: answers as pynvml gives them, by hardware profile.

It stands at the device's own boundary: the same calls, numbers in NVML's units, NVML's own errors.
What a profile supports follows what its devices are reported to answer; its readings are made up,
and whoever shows them says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pynvml


@dataclass(frozen=True)
class Fails:
    """An answer that is NVML's error of this code."""

    code: int


Answer = int | Fails
Memory = tuple[int, int] | Fails
NOT_SUPPORTED = Fails(pynvml.NVML_ERROR_NOT_SUPPORTED)
MIB = 2**20


@dataclass
class FakeDevice:
    """One GPU, in NVML's units: milliwatts, degrees, MHz, bytes, per cent, millijoules.

    `memory` and `memory_v2` are (used, whole); a test may put another answer or an error in any
    place at any time.
    """

    name: str
    uuid: str
    power_mw: Answer = 0
    enforced_mw: Answer = NOT_SUPPORTED
    limit_mw: Answer = NOT_SUPPORTED
    temperature_c: Answer = 40
    slowdown_c: Answer = NOT_SUPPORTED
    sm_mhz: Answer = 0
    memory: Memory = NOT_SUPPORTED
    memory_v2: Memory = NOT_SUPPORTED
    busy_percent: Answer = 0
    energy_mj: Answer | None = None
    """None: what the power adds up to since the start."""
    reasons: Answer = 0
    lost: Fails | None = None
    """What every call on it gives, once it is."""


def gb10() -> FakeDevice:
    """A DGX Spark's GPU: no limits, no memory of its own, no memory clock."""
    return FakeDevice(
        "NVIDIA GB10", "GPU-simulated-gb10", power_mw=38_400, temperature_c=58, sm_mhz=2_190,
        busy_percent=71,
    )  # fmt: skip


def gb300() -> FakeDevice:
    """A GB300: everything but slowdown thresholds in plain degrees."""
    whole = 284_208 * MIB
    return FakeDevice(
        "NVIDIA GB300", "GPU-simulated-gb300", power_mw=612_000, enforced_mw=1_400_000,
        limit_mw=1_400_000, temperature_c=54, sm_mhz=1_920, memory=(whole * 9 // 10, whole),
        memory_v2=(whole * 9 // 10 - 947 * MIB, whole), busy_percent=64,
    )  # fmt: skip


def rtx_pro_6000() -> FakeDevice:
    whole = 97_887 * MIB
    return FakeDevice(
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "GPU-simulated-rtx",
        power_mw=171_000, enforced_mw=600_000, limit_mw=600_000, temperature_c=61, slowdown_c=92,
        sm_mhz=2_310, memory=(whole * 4 // 5, whole), memory_v2=(whole * 4 // 5, whole),
        busy_percent=38,
    )  # fmt: skip


def h200(number: int) -> FakeDevice:
    whole = 143_771 * MIB
    return FakeDevice(
        "NVIDIA H200", f"GPU-simulated-h200-{number}", power_mw=318_000, enforced_mw=700_000,
        limit_mw=700_000, temperature_c=49, slowdown_c=87, sm_mhz=1_830,
        memory=(whole // 2, whole), memory_v2=(whole // 2, whole), busy_percent=55,
    )  # fmt: skip


PROFILES: dict[str, Callable[[], list[FakeDevice]]] = {
    "dgx-spark": lambda: [gb10()],
    "dgx-station-gb300": lambda: [rtx_pro_6000(), gb300()],
    "h200-8": lambda: [h200(number) for number in range(8)],
}
"""Devices of a profile, in the order of their indexes."""


@dataclass
class FakeNvml:
    """Answers the calls that NvmlReader makes. `absent` is what nvmlInit gives."""

    devices: list[FakeDevice] = field(default_factory=list)
    absent: Fails | None = None
    clock: Callable[[], float] = monotonic
    calls: list[str] = field(default_factory=list)
    """Names of the calls made, the newest last; for tests."""

    NVMLError = pynvml.NVMLError
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    nvmlMemory_v2 = pynvml.nvmlMemory_v2  # noqa: N815 as NVML spells it

    def __post_init__(self) -> None:
        self._began_s = self.clock()
        self._open = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A call by NVML's name: nvmlDeviceGet... of one device, else of all."""
        call = _CALLS.get(name)
        if call is None:
            raise AttributeError(name)

        def ask(*arguments: Any) -> Any:
            self.calls.append(name)
            if not self._open and name != "nvmlInit":
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
            return call(self, *arguments)

        return ask

    def _init(self) -> None:
        if self.absent is not None:
            raise pynvml.NVMLError(self.absent.code)
        self._open = True

    def _shut_down(self) -> None:
        self._open = False

    def _energy(self, device: FakeDevice) -> Any:
        if device.energy_mj is not None:
            return device.energy_mj
        power = device.power_mw
        return power if isinstance(power, Fails) else int(power * (self.clock() - self._began_s))


def _of_device(find: Callable[..., Any]) -> Callable[..., Any]:
    """A call on one device's handle, which is the device."""

    def call(library: FakeNvml, device: FakeDevice, *arguments: Any) -> Any:
        answer = device.lost or find(library, device, *arguments)
        if isinstance(answer, Fails):
            raise pynvml.NVMLError(answer.code)
        return answer

    return call


def _reading(name: str) -> Callable[..., Any]:
    return _of_device(lambda _library, device, *_arguments: getattr(device, name))


def _memory(_library: FakeNvml, device: FakeDevice, version: int | None = None) -> Any:
    answer = device.memory if version is None else device.memory_v2
    if isinstance(answer, Fails):
        return answer
    return SimpleNamespace(used=answer[0], total=answer[1], free=answer[1] - answer[0])


def _rates(_library: FakeNvml, device: FakeDevice) -> Any:
    busy = device.busy_percent
    return busy if isinstance(busy, Fails) else SimpleNamespace(gpu=busy, memory=0)


_CALLS: dict[str, Callable[..., Any]] = {
    "nvmlInit": FakeNvml._init,
    "nvmlShutdown": FakeNvml._shut_down,
    "nvmlDeviceGetCount": lambda library: len(library.devices),
    "nvmlDeviceGetHandleByIndex": lambda library, index: library.devices[index],
    "nvmlDeviceGetName": lambda _library, device: device.name,
    "nvmlDeviceGetUUID": lambda _library, device: device.uuid,
    "nvmlDeviceGetPowerUsage": _reading("power_mw"),
    "nvmlDeviceGetEnforcedPowerLimit": _reading("enforced_mw"),
    "nvmlDeviceGetPowerManagementLimit": _reading("limit_mw"),
    "nvmlDeviceGetTemperature": _reading("temperature_c"),
    "nvmlDeviceGetTemperatureThreshold": _reading("slowdown_c"),
    "nvmlDeviceGetClockInfo": _reading("sm_mhz"),
    "nvmlDeviceGetMemoryInfo": _of_device(_memory),
    "nvmlDeviceGetUtilizationRates": _of_device(_rates),
    "nvmlDeviceGetTotalEnergyConsumption": _of_device(FakeNvml._energy),
    "nvmlDeviceGetCurrentClocksEventReasons": _reading("reasons"),
}
