"""GPUs of this node through NVML, read and never set: nothing here can reach a setter.

`library` is the module pynvml, or something that answers as it does. Every call may take a long
time (a driver in trouble answers after 45 s), so one thread owns a reader and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from k3d.node.nvml_answers import ABSENT, FOR_GOOD, LOST, number, throttle_words
from k3d.store.frame import Accelerator

UNIFIED_WITHIN = 0.05
"""A GPU whose memory is so near to the node's in size shares it: its own may well be larger."""
Library = Any


@dataclass(frozen=True)
class Devices:
    """All GPUs at one moment. `missing`: of what cannot be read why, by `gpuN.reading`, or by
    `accelerators` where there is none to ask."""

    found: tuple[Accelerator, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


@dataclass
class _Device:
    """What does not change of one GPU, and what it will never say."""

    index: int
    handle: Any
    name: str
    uuid: str | None
    node_bytes: int | None
    """The node's own memory."""
    never: dict[str, str] = field(default_factory=dict)


class NvmlReader:
    """`memory_bytes` is the node's own memory, to know a GPU that shares it. One thread."""

    def __init__(self, library: Library | None, memory_bytes: int | None = None) -> None:
        self._library = library
        self._memory_bytes = memory_bytes
        self._devices: list[_Device] | None = None

    def read(self) -> Devices:
        """Every reading of every GPU. Does not raise for anything that NVML answers."""
        library = self._library
        if library is None:
            return Devices(missing={"accelerators": "pynvml is not installed here"})
        try:
            if self._devices is None:
                library.nvmlInit()
                self._devices = self._find(library)
        except library.NVMLError as error:
            return Devices(missing={"accelerators": absence(error)})
        if not self._devices:
            return Devices(missing={"accelerators": "the NVIDIA driver finds no GPU here"})
        found, missing = [], {}
        for device in self._devices:
            accelerator, reasons = self._read(library, device)
            found.append(accelerator)
            missing |= {f"gpu{device.index}.{name}": why for name, why in reasons.items()}
        if all(each.lost for each in found):
            self._start_over(library)
        return Devices(tuple(found), missing)

    def _find(self, library: Library) -> list[_Device]:
        devices = []
        for index in range(library.nvmlDeviceGetCount()):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            name = _text(library.nvmlDeviceGetName(handle))
            try:
                uuid = _text(library.nvmlDeviceGetUUID(handle))
            except library.NVMLError:
                uuid = None
            devices.append(_Device(index, handle, name, uuid, self._memory_bytes))
        return devices

    def _start_over(self, library: Library) -> None:
        """The driver may have been reloaded: ask anew which devices there are."""
        self._devices = None
        try:
            library.nvmlShutdown()
        except library.NVMLError:
            return  # it was gone already

    def _read(self, library: Library, device: _Device) -> tuple[Accelerator, dict[str, str]]:
        values: dict[str, Any] = {}
        reasons = dict(device.never)
        for name, ask in ASKS.items():
            if name in device.never:
                continue
            try:
                value = ask(library, device)
            except library.NVMLError as error:
                if error.value in LOST:
                    return _lost(device, LOST[error.value].format(device=device.name))
                reasons[name] = _reason(error, device.name)
                if error.value in FOR_GOOD:
                    device.never[name] = reasons[name]
                continue
            if isinstance(value, str):
                reasons[name] = device.never[name] = value
            elif value is None:
                reasons[name] = f"{device.name} gave no data"
            elif name == "memory_bytes":
                values["memory_used_bytes"], values[name] = value
            else:
                values[name] = value
        return Accelerator(
            name=device.name, index=device.index, uuid=device.uuid, **values
        ), reasons


def absence(error: Any) -> str:
    """Why there is no NVML, as a clause."""
    return ABSENT.get(error.value, f"NVML answers: {error}")


def _lost(device: _Device, why: str) -> tuple[Accelerator, dict[str, str]]:
    lost = Accelerator(name=device.name, index=device.index, uuid=device.uuid, lost=why)
    return lost, dict.fromkeys(ASKS, why)


def _reason(error: Any, device: str) -> str:
    known = FOR_GOOD.get(error.value)
    return known.format(device=device) if known else f"NVML answers: {error}"


def _scaled(value: object, factor: float) -> float | None:
    plain = number(value)
    return None if plain is None else round(plain * factor, 3)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _power(library: Library, device: _Device) -> float | None:
    return _scaled(library.nvmlDeviceGetPowerUsage(device.handle), 1e-3)


def _cap(library: Library, device: _Device) -> float | None:
    """The limit that is enforced; some devices say that and not the one that was set."""
    try:
        return _scaled(library.nvmlDeviceGetEnforcedPowerLimit(device.handle), 1e-3)
    except library.NVMLError as error:
        if error.value not in FOR_GOOD:
            raise
    return _scaled(library.nvmlDeviceGetPowerManagementLimit(device.handle), 1e-3)


def _temperature(library: Library, device: _Device) -> float | None:
    sensor = library.NVML_TEMPERATURE_GPU
    return number(library.nvmlDeviceGetTemperature(device.handle, sensor)) or None


def _temperature_limit(library: Library, device: _Device) -> float | None:
    kind = library.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    return number(library.nvmlDeviceGetTemperatureThreshold(device.handle, kind)) or None


def _clock(library: Library, device: _Device) -> float | None:
    return number(library.nvmlDeviceGetClockInfo(device.handle, library.NVML_CLOCK_SM))


def _memory(library: Library, device: _Device) -> tuple[int, int] | str | None:
    """(used, whole) bytes; v1 counts what the driver reserves as used, so v2 is asked first."""
    try:
        memory = library.nvmlDeviceGetMemoryInfo(device.handle, library.nvmlMemory_v2)
    except library.NVMLError as error:
        if error.value not in FOR_GOOD:
            raise
        memory = library.nvmlDeviceGetMemoryInfo(device.handle)
    used, whole = number(memory.used), number(memory.total)
    if used is None or not whole:
        return None
    if device.node_bytes and abs(whole / device.node_bytes - 1) <= UNIFIED_WITHIN:
        return "it shares the node's memory, which is shown there"
    return int(used), int(whole)


def _busy(library: Library, device: _Device) -> float | None:
    share = number(library.nvmlDeviceGetUtilizationRates(device.handle).gpu)
    return None if share is None or share > 100 else share / 100


def _energy(library: Library, device: _Device) -> float | None:
    return _scaled(library.nvmlDeviceGetTotalEnergyConsumption(device.handle), 1e-3)


def _throttled(library: Library, device: _Device) -> tuple[str, ...]:
    return throttle_words(library.nvmlDeviceGetCurrentClocksEventReasons(device.handle))


ASKS: dict[str, Callable[[Library, _Device], Any]] = {
    "power_w": _power,
    "power_cap_w": _cap,
    "temperature_c": _temperature,
    "temperature_limit_c": _temperature_limit,
    "clock_mhz": _clock,
    "memory_bytes": _memory,
    "busy_share": _busy,
    "energy_j": _energy,
    "throttled": _throttled,
}
