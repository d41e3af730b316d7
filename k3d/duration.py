"""Times as a person reads them, in every sentence and table."""

from __future__ import annotations


def duration_us(time_us: float | None) -> str:
    """Microseconds in the unit that reads best; None as a dash."""
    if time_us is None:
        return "-"
    if time_us < 1_000:
        return f"{time_us:.0f} us"
    return f"{time_us / 1000:.2f} ms" if time_us < 1_000_000 else f"{time_us / 1e6:.1f} s"
