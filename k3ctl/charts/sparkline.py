"""A row of figures in one line of text."""

from __future__ import annotations

from collections.abc import Sequence

from k3ctl.charts.axis import finite

BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"


def sparkline(
    values: Sequence[float | None],
    width: int,
    ascii: bool,  # noqa: A002 - what every caller calls it
    *,
    most: float | None = None,
) -> str:
    """The newest `width` values as blocks, from 0 to `most` or the largest; None is a space.

    Never longer than `width`. A value of 0 shows the lowest block: it was measured.
    """
    if width <= 0:
        return ""
    blocks = ASCII_BLOCKS if ascii else BLOCKS
    known = [finite(value) for value in values[-width:]]
    top = max((value for value in known if value is not None), default=0.0)
    top = top if most is None else max(most, 5e-324)
    return "".join(
        " " if value is None else blocks[_height(value, top, len(blocks))] for value in known
    )


def _height(value: float, top: float, steps: int) -> int:
    if value <= 0 or top <= 0:
        return 0
    return min(steps - 1, int(min(1.0, value / top) * steps))
