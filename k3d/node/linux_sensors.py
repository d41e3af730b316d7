"""What Linux says of this machine: processors, memory, disk, temperatures, power. Read from files
under `root`, at most once a second; a value that is not there has a reason instead."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import NamedTuple

WHOLE_NODE = ("sys_total", "dc_input")
"""Labels of channels that measure everything a machine draws, the best first."""
KIB = 1024


@dataclass(frozen=True)
class Readings:
    """Keys are those of k3d.store.frame.Sensors; `missing` names those that are None."""

    values: dict[str, float | int | str | None] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class _Heat(NamedTuple):
    celsius: float
    limit: float | None
    source: str


class LinuxSensors:
    """One machine; `home` is whose file system's free bytes count. One thread."""

    def __init__(
        self, home: Path, root: Path = Path("/"), clock: Callable[[], float] = monotonic
    ) -> None:
        self._home = home
        self._root = root
        self._clock = clock
        self._busy_before: tuple[int, int] | None = None
        self._energy_before: dict[str, int] = {}
        self._energy_s: float | None = None

    def read(self) -> Readings:
        values: dict[str, float | int | str | None] = {}
        missing: dict[str, str] = {}
        for name, read in (
            ("memory_bytes", self._memory),
            ("busy_share", self._busy),
            ("clock_mhz", self._clock_mhz),
            ("disk_free_bytes", self._disk),
            ("temperature_c", self._heat),
            ("power_w", self._power),
            ("cpu_power_w", self._processor_power),
        ):
            try:
                found, reasons = read()
            except (OSError, ValueError, LookupError, StopIteration) as error:
                found, reasons = {}, {name: f"it cannot be read: {error!r}"}
            values |= found
            missing |= reasons
        return Readings(values, missing)

    @property
    def memory_bytes(self) -> int | None:
        """The machine's memory; None where it cannot be read."""
        try:
            return self._meminfo().get("MemTotal")
        except (OSError, ValueError):
            return None

    def _memory(self) -> tuple[dict, dict]:
        lines = self._meminfo()
        whole, free = lines.get("MemTotal"), lines.get("MemAvailable")
        if whole is None or free is None:
            return {}, {"memory_bytes": "/proc/meminfo has no MemTotal or no MemAvailable"}
        swap, swap_free = lines.get("SwapTotal"), lines.get("SwapFree")
        used_swap = None if swap is None or swap_free is None else swap - swap_free
        return {
            "memory_bytes": whole,
            "memory_used_bytes": max(0, whole - free),
            "swap_used_bytes": used_swap,
        }, {}

    def _meminfo(self) -> dict[str, int]:
        """Bytes by name."""
        lines = (line.split() for line in self._lines("proc/meminfo"))
        return {words[0].rstrip(":"): int(words[1]) * KIB for words in lines if len(words) == 3}

    def _busy(self) -> tuple[dict, dict]:
        """Share of the time since the last reading in which processors worked."""
        ticks = [int(word) for word in next(self._lines("proc/stat")).split()[1:9]]
        now = (sum(ticks), ticks[3] + ticks[4])  # idle and waiting for a disk
        before, self._busy_before = self._busy_before, now
        if before is None or now[0] <= before[0]:
            return {}, {"busy_share": "it takes two readings"}
        busy = 1.0 - (now[1] - before[1]) / (now[0] - before[0])
        return {"busy_share": round(min(1.0, max(0.0, busy)), 4)}, {}

    def _clock_mhz(self) -> tuple[dict, dict]:
        """The mean of the processors' clocks."""
        folder = self._root / "sys/devices/system/cpu/cpufreq"
        clocks = [self._number(path) for path in folder.glob("policy*/scaling_cur_freq")]
        found = [each / 1000 for each in clocks if each]
        if not found:
            lines = (line for line in self._lines("proc/cpuinfo") if line.startswith("cpu MHz"))
            found = [float(line.rpartition(":")[2]) for line in lines]
        if not found:
            return {}, {"clock_mhz": "this kernel does not tell the processors' clocks"}
        return {"clock_mhz": round(sum(found) / len(found), 1)}, {}

    def _disk(self) -> tuple[dict, dict]:
        usage = os.statvfs(self._home)
        return {"disk_free_bytes": usage.f_bavail * usage.f_frsize}, {}

    def _heat(self) -> tuple[dict, dict]:
        """The hottest sensor. One that says 0 or less, or more than 150 C, says nothing."""
        heats = [heat for heat in self._heats() if 0 < heat.celsius <= 150]
        if not heats:
            return {}, {"temperature_c": "this machine shows no temperature sensor"}
        hottest = max(heats)
        return {
            "temperature_c": round(hottest.celsius, 1),
            "temperature_limit_c": hottest.limit,
            "temperature_source": hottest.source,
        }, {}

    def _heats(self) -> Iterator[_Heat]:
        for path in self._root.glob("sys/class/hwmon/hwmon*/temp*_input"):
            value = self._number(path)
            if value is not None:
                limit = self._number(path.with_name(path.name.replace("_input", "_crit")))
                believed = None if limit is None or not 0 < limit <= 150_000 else limit / 1000
                yield _Heat(value / 1000, believed, self._label(path, "_input"))
        for path in self._root.glob("sys/class/thermal/thermal_zone*/temp"):
            value = self._number(path)
            if value is not None:
                yield _Heat(value / 1000, None, self._text(path.with_name("type")) or "a zone")

    def _power(self) -> tuple[dict, dict]:
        """Of the whole machine: only a channel that says it measures that."""
        found: dict[str, float] = {}
        for path in self._channels("power"):
            value = self._number(path)
            meter = self._text(path.with_name("name")) == "power_meter"
            label = self._label(path, path.name[path.name.index("_") :])
            if value and (label in WHOLE_NODE or (meter and "Socket" not in label)):
                found[label if label in WHOLE_NODE else "power_meter"] = value / 1e6
        best = next((label for label in (*WHOLE_NODE, "power_meter") if label in found), None)
        if best is None:
            return {}, {"power_w": "nothing measures what the whole machine draws"}
        return {"power_w": round(found[best], 2), "power_source": best}, {}

    def _processor_power(self) -> tuple[dict, dict]:
        sockets = [
            self._number(path)
            for path in self._channels("power")
            if "Power Socket" in self._label(path, path.name[path.name.index("_") :])
        ]
        if any(sockets):
            return {"cpu_power_w": round(sum(each or 0 for each in sockets) / 1e6, 2)}, {}
        return self._from_energy()

    def _from_energy(self) -> tuple[dict, dict]:
        """Out of the packages' energy counters, which wrap and start over."""
        folder = self._root / "sys/class/powercap"
        counters = {
            path.parent.name: self._number(path)
            for path in folder.glob("*-rapl:[0-9]*/energy_uj")
            if path.parent.name.count(":") == 1
        }
        now = {name: value for name, value in counters.items() if value is not None}
        now_s, before_s = self._clock(), self._energy_s
        before, self._energy_before, self._energy_s = self._energy_before, now, now_s
        if not now:
            why = "may not be read by this user" if counters else "are not there"
            return {}, {"cpu_power_w": f"the processors' energy counters {why}"}
        grown = [now[name] - before[name] for name in now if name in before]
        if before_s is None or now_s <= before_s or not grown or min(grown) < 0:
            return {}, {"cpu_power_w": "it takes two readings of the energy counters"}
        return {"cpu_power_w": round(sum(grown) / 1e6 / (now_s - before_s), 2)}, {}

    def _channels(self, kind: str) -> Iterator[Path]:
        """What a sensor reads now: its average where it has one."""
        for path in sorted(self._root.glob(f"sys/class/hwmon/hwmon*/{kind}*_input")):
            if not path.with_name(path.name.replace("_input", "_average")).exists():
                yield path
        yield from sorted(self._root.glob(f"sys/class/hwmon/hwmon*/{kind}*_average"))

    def _label(self, path: Path, ending: str) -> str:
        """A channel is found by its label: numbers move."""
        own = self._text(path.with_name(path.name.replace(ending, "_label")))
        return own or self._text(path.with_name("name")) or path.parent.name

    def _lines(self, name: str) -> Iterator[str]:
        yield from (self._root / name).read_text(encoding="utf-8").splitlines()

    def _text(self, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8", errors="replace").strip() or None
        except OSError:
            return None

    def _number(self, path: Path) -> int | None:
        """None where it cannot be read: a sensor may be there and asleep."""
        text = self._text(path)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None
