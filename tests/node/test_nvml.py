"""GPUs as NVML answers for them: what is not offered is None with a reason, and lost is lost."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

import k3d.node.nvml
from k3d.node.fake_nvml import PROFILES, Fails, FakeDevice, FakeNvml, gb10, h200
from k3d.node.nvml import NvmlReader
from k3d.node.nvml_answers import BLANKS, number, throttle_words

NODE_BYTES = 127_600_748 * 1024


def test_a_gb10_has_no_limits_and_no_memory_of_its_own() -> None:
    devices = NvmlReader(FakeNvml([gb10()]), NODE_BYTES).read()
    (device,) = devices.found
    assert (device.name, device.index) == ("NVIDIA GB10", 0)
    assert (device.power_w, device.clock_mhz, device.busy_share) == (38.4, 2190.0, 0.71)
    for name in ("power_cap_w", "memory_bytes", "temperature_limit_c"):
        assert getattr(device, name) is None
        assert devices.missing[f"gpu0.{name}"] == "not supported by NVIDIA GB10"
    assert device.memory_used_bytes is None
    assert device.lost is None


def test_a_station_has_its_two_gpus_by_index_with_caps_in_watts() -> None:
    devices = NvmlReader(FakeNvml(PROFILES["dgx-station-gb300"]()), NODE_BYTES).read()
    rtx, gb300 = devices.found
    assert (rtx.index, gb300.index) == (0, 1)
    assert rtx.name.startswith("NVIDIA RTX PRO 6000")
    assert (rtx.power_cap_w, gb300.power_cap_w) == (600.0, 1400.0)
    assert gb300.memory_bytes == 284_208 * 2**20
    assert gb300.memory_used_bytes is not None
    assert gb300.memory_used_bytes < gb300.memory_bytes * 0.9, "v2, without what is reserved"
    assert rtx.uuid != gb300.uuid


def test_what_is_not_supported_is_asked_once() -> None:
    library = FakeNvml([gb10()])
    reader = NvmlReader(library, NODE_BYTES)
    first = reader.read()
    asked = len(library.calls)
    assert reader.read().missing == first.missing
    assert "nvmlDeviceGetMemoryInfo" not in library.calls[asked:]
    assert "nvmlDeviceGetPowerUsage" in library.calls[asked:]


def test_a_gpu_that_claims_the_nodes_memory_shares_it() -> None:
    whole = int(NODE_BYTES * 0.98)
    device = gb10()
    device.memory = device.memory_v2 = (whole // 2, whole)
    devices = NvmlReader(FakeNvml([device]), NODE_BYTES).read()
    assert devices.found[0].memory_bytes is None
    assert "shares the node's memory" in devices.missing["gpu0.memory_bytes"]


def test_an_older_driver_answers_the_older_call() -> None:
    device = h200(0)
    device.memory_v2 = Fails(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    devices = NvmlReader(FakeNvml([device]), NODE_BYTES).read()
    assert devices.found[0].memory_bytes == 143_771 * 2**20
    device.sm_mhz = Fails(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    devices = NvmlReader(FakeNvml([device]), NODE_BYTES).read()
    assert devices.found[0].clock_mhz is None
    assert "driver does not know" in devices.missing["gpu0.clock_mhz"]
    assert devices.found[0].power_w == 318.0, "the others work"


def test_the_limit_that_was_set_stands_in_for_the_one_enforced() -> None:
    device = h200(0)
    device.enforced_mw = Fails(pynvml.NVML_ERROR_NOT_SUPPORTED)
    device.limit_mw = 450_000
    assert NvmlReader(FakeNvml([device])).read().found[0].power_cap_w == 450.0


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_a_lost_gpu_is_lost_whole_and_does_not_pass_for_a_gb10(code: int) -> None:
    bad, good = h200(0), h200(1)
    library = FakeNvml([bad, good])
    reader = NvmlReader(library, NODE_BYTES)
    assert reader.read().found[0].power_w == 318.0
    bad.lost = Fails(code)
    devices = reader.read()
    lost, other = devices.found
    assert lost.lost is not None
    assert "H200" in lost.lost
    assert (lost.power_w, lost.memory_bytes, lost.temperature_c) == (None, None, None)
    assert devices.missing["gpu0.memory_bytes"] == lost.lost
    assert other.power_w == 318.0
    bad.lost = None
    assert reader.read().found[0].power_w == 318.0, "it came back"


def test_a_driver_that_was_reloaded_is_asked_anew() -> None:
    device = gb10()
    library = FakeNvml([device])
    reader = NvmlReader(library)
    reader.read()
    device.lost = Fails(pynvml.NVML_ERROR_GPU_IS_LOST)
    reader.read()
    library.devices = [h200(0)]
    assert [each.name for each in reader.read().found] == ["NVIDIA H200"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver is installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot"),
        (pynvml.NVML_ERROR_UNKNOWN, "NVML answers"),
    ],
)
def test_no_driver_is_one_reason_and_is_looked_for_again(code: int, words: str) -> None:
    library = FakeNvml([gb10()], absent=Fails(code))
    reader = NvmlReader(library)
    devices = reader.read()
    assert devices.found == ()
    assert words in devices.missing["accelerators"]
    library.absent = None
    assert len(reader.read().found) == 1


def test_no_pynvml_and_no_gpu_are_reasons_too() -> None:
    assert "pynvml" in NvmlReader(None).read().missing["accelerators"]
    assert "no GPU" in NvmlReader(FakeNvml([])).read().missing["accelerators"]


def test_an_error_of_the_moment_is_asked_again_the_next_time() -> None:
    device = gb10()
    device.power_mw = Fails(pynvml.NVML_ERROR_TIMEOUT)
    reader = NvmlReader(FakeNvml([device]))
    devices = reader.read()
    assert devices.found[0].power_w is None
    assert devices.missing["gpu0.power_w"] == "NVML answers: Timeout"
    device.power_mw = 40_000
    assert reader.read().found[0].power_w == 40.0


@pytest.mark.parametrize("blank", sorted(BLANKS))
def test_numbers_that_stand_for_no_data_are_none(blank: int) -> None:
    assert number(blank) is None
    device = gb10()
    device.power_mw = device.temperature_c = device.energy_mj = blank
    devices = NvmlReader(FakeNvml([device])).read()
    assert devices.found[0].power_w is None
    assert devices.found[0].temperature_c is None
    assert devices.missing["gpu0.power_w"] == "NVIDIA GB10 gave no data"


def test_a_temperature_stuck_at_nought_is_no_temperature() -> None:
    device = gb10()
    device.temperature_c = 0
    assert NvmlReader(FakeNvml([device])).read().found[0].temperature_c is None


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x20, ("software thermal slowdown",)),
        (0x40, ("hardware thermal slowdown",)),
        (0x4, ("power cap",)),
        (0x84, ("power cap", "hardware power brake")),
        (0x8 | 0x4000, ("hardware slowdown", "reason 0x4000")),
    ],
)
def test_what_holds_a_gpu_back_has_words(bits: int, words: tuple[str, ...]) -> None:
    assert throttle_words(bits) == words
    device = gb10()
    device.reasons = bits
    assert NvmlReader(FakeNvml([device])).read().found[0].throttled == words


def test_energy_adds_up_from_power() -> None:
    times = iter([0.0, 10.0, 30.0])
    library = FakeNvml([FakeDevice("x", "u", power_mw=50_000)], clock=lambda: next(times))
    reader = NvmlReader(library)
    assert [reader.read().found[0].energy_j for _ in range(2)] == [500.0, 1500.0]


def test_the_reader_cannot_reach_a_setter() -> None:
    text = Path(k3d.node.nvml.__file__).read_text()
    assert "nvmlDeviceGet" in text
    assert "nvmlDeviceSet" not in text
    assert not any("Set" in name for name in FakeNvml([gb10()]).calls)
