"""What NVML's answers mean: readings, bits and errors, in words.

A GPU that does not offer a reading says NOT_SUPPORTED, and that is a fact of the device. Everything
else that goes wrong is of the moment, or of the machine.
"""

from __future__ import annotations

BLANKS = frozenset(
    {2**31 - 1, 2**31, 2**32 - 1, 2**63 - 14, 2**63 - 1, 2**64 - 1, 9223372036854775794, -1}
)
"""Numbers that stand for no data in NVML and in what is built on it."""

THROTTLE_WORDS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
IDLE = 0x1
"""Clocks are low because there is nothing to do; that is no trouble."""

NOT_SUPPORTED = 3
NO_PERMISSION = 4
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
FOR_GOOD = {
    NOT_SUPPORTED: "not supported by {device}",
    FUNCTION_NOT_FOUND: "the installed driver does not know how to read it",
    NO_PERMISSION: "this user may not read it",
}
"""Errors that the next second does not change."""
LOST = {
    GPU_IS_LOST: "{device} is lost: it fell off the bus",
    RESET_REQUIRED: "{device} needs a reset before it can be used",
}
"""Errors after which no reading of the device is to be believed."""
ABSENT = {
    12: "no NVIDIA driver is installed here",
    9: "the NVIDIA driver is not loaded",
    18: "the NVIDIA driver was updated and not reloaded: reboot, or reload its modules",
}
"""Why there is no NVML at all."""


def throttle_words(bits: int) -> tuple[str, ...]:
    """What holds a device back; a bit without a word is shown as it is."""
    words = [word for bit, word in THROTTLE_WORDS.items() if bits & bit]
    unknown = bits & ~(IDLE | sum(THROTTLE_WORDS))
    return (*words, f"reason {unknown:#x}") if unknown else tuple(words)


def number(value: object) -> float | None:
    """A reading; None for what stands for no data."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value in BLANKS:
        return None
    return float(value)
