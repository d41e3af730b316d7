"""Sensors of a machine out of a tree of files: found by label, believed within reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3d.node.linux_sensors import LinuxSensors

GIB = 2**20  # in kB


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine without any sensor."""
    put(
        tmp_path,
        "proc/meminfo",
        f"""\
MemTotal:       {16 * GIB} kB
MemFree:         {GIB} kB
MemAvailable:    {4 * GIB} kB
SwapTotal:       {2 * GIB} kB
SwapFree:        {2 * GIB} kB
HugePages_Total:       0
""",
    )
    put(tmp_path, "proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n")
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\n")
    return tmp_path


def put(root: Path, name: str, text: str | int) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def hwmon(root: Path, number: int, name: str, **channels: int | str) -> None:
    put(root, f"sys/class/hwmon/hwmon{number}/name", name)
    for channel, value in channels.items():
        put(root, f"sys/class/hwmon/hwmon{number}/{channel}", value)


def test_a_machine_without_sensors_says_so_and_gives_no_noughts(root: Path) -> None:
    readings = LinuxSensors(root, root).read()
    assert readings.values["memory_bytes"] == 16 * 2**30
    assert readings.values["memory_used_bytes"] == 12 * 2**30
    assert readings.values["swap_used_bytes"] == 0
    assert (readings.values["disk_free_bytes"] or 0) > 0  # type: ignore[operator]
    for name in ("temperature_c", "power_w", "cpu_power_w", "clock_mhz", "busy_share"):
        assert readings.values.get(name) is None
        assert readings.missing[name]


def test_no_proc_at_all_is_reasons(tmp_path: Path) -> None:
    sensors = LinuxSensors(tmp_path, tmp_path)
    readings = sensors.read()
    assert {"memory_bytes", "busy_share", "clock_mhz"} <= set(readings.missing)
    assert sensors.memory_bytes is None
    gone = LinuxSensors(tmp_path / "gone", tmp_path).read()
    assert "disk_free_bytes" in gone.missing


def test_busy_is_of_the_time_between_two_readings(root: Path) -> None:
    sensors = LinuxSensors(root, root)
    sensors.read()
    put(root, "proc/stat", "cpu  150 0 125 715 110 0 0 0 0 0\n")
    assert sensors.read().values["busy_share"] == 0.75
    assert "two readings" in sensors.read().missing["busy_share"]


def test_the_hottest_sensor_is_named_with_its_limit(root: Path) -> None:
    hwmon(root, 0, "nvme", temp1_input=55_000, temp1_label="Composite", temp1_crit=84_850)
    hwmon(root, 1, "acpitz", temp1_input=71_000, temp1_crit=104_000)
    hwmon(root, 2, "broken", temp1_input=-128_000, temp2_input=255_000, temp3_input=0)
    put(root, "sys/class/thermal/thermal_zone0/temp", 60_000)
    values = LinuxSensors(root, root).read().values
    assert (values["temperature_c"], values["temperature_limit_c"]) == (71.0, 104.0)
    assert values["temperature_source"] == "acpitz"


def test_clocks_come_from_cpufreq_else_from_cpuinfo(root: Path) -> None:
    put(root, "proc/cpuinfo", "cpu MHz\t\t: 2000.0\n\ncpu MHz\t\t: 3000.0\n")
    assert LinuxSensors(root, root).read().values["clock_mhz"] == 2500.0
    for policy, khz in ((0, 1_000_000), (4, 2_000_000)):
        put(root, f"sys/devices/system/cpu/cpufreq/policy{policy}/scaling_cur_freq", khz)
    assert LinuxSensors(root, root).read().values["clock_mhz"] == 1500.0


@pytest.mark.parametrize("places", [(1, 2, 3), (3, 1, 2)])
def test_the_whole_nodes_watts_are_found_by_their_label(
    root: Path, places: tuple[int, int, int]
) -> None:
    labels = {"soc_pkg": 17_000_000, "sys_total": 96_500_000, "dc_input": 101_000_000}
    for place, (label, microwatts) in zip(places, labels.items(), strict=True):
        hwmon(root, 0, "spbm", **{f"power{place}_label": label, f"power{place}_input": microwatts})
    values = LinuxSensors(root, root).read().values
    assert (values["power_w"], values["power_source"]) == (96.5, "sys_total")


def test_sockets_of_a_grace_are_processors_and_not_the_node(root: Path) -> None:
    hwmon(root, 0, "power_meter", power1_average=210_000_000, power1_oem_info="x")
    put(root, "sys/class/hwmon/hwmon0/power1_label", "Grace Power Socket 0")
    readings = LinuxSensors(root, root).read()
    assert readings.values["cpu_power_w"] == 210.0
    assert readings.values.get("power_w") is None
    hwmon(root, 1, "power_meter", power1_average=800_000_000)
    values = LinuxSensors(root, root).read().values
    assert (values["power_w"], values["power_source"]) == (800.0, "power_meter")


def test_energy_counters_give_power_and_a_reboot_gives_none(root: Path) -> None:
    times = iter([0.0, 2.0, 3.0, 4.0])
    sensors = LinuxSensors(root, root, clock=lambda: next(times))
    package = "sys/class/powercap/intel-rapl:0/energy_uj"
    put(root, package, 1_000_000)
    put(root, "sys/class/powercap/intel-rapl:0:0/energy_uj", 9)
    assert "two readings" in sensors.read().missing["cpu_power_w"]
    put(root, package, 91_000_000)
    assert sensors.read().values["cpu_power_w"] == 45.0
    put(root, package, 5_000)
    readings = sensors.read()
    assert readings.values.get("cpu_power_w") is None
    assert readings.missing["cpu_power_w"]
    put(root, package, 10_005_000)
    assert sensors.read().values["cpu_power_w"] == 10.0


def test_a_value_that_is_no_number_is_left_out(root: Path) -> None:
    hwmon(root, 0, "odd", temp1_input="N/A", power1_input="")
    readings = LinuxSensors(root, root).read()
    assert "temperature_c" in readings.missing
    put(root, "proc/stat", "cpu\n")
    put(root, "proc/meminfo", "MemTotal: lots kB\n")
    assert {"busy_share", "memory_bytes"} <= set(LinuxSensors(root, root).read().missing)
