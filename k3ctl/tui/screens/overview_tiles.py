"""The figures on top of the overview: what the pod does now, and its last minutes beside it."""

from __future__ import annotations

from dataclasses import dataclass

from k3ctl.tui.figures import amount, curve
from k3ctl.tui.ink import BLANK, Line, Span, line, pad, quiet, strong
from k3ctl.tui.lane_sums import lane_sums
from k3ctl.tui.marks import Marks
from k3ctl.tui.trail import Trail, pod_power_w
from k3d.store.frame import Frame

LEAST_TILE = 14
GAP = 2


@dataclass(frozen=True)
class Tile:
    """A figure: title, value and unit, and the figure of the trail that is its curve."""

    title: str
    value: str
    unit: str
    figure: str
    drop: int = 0


def tiles_of(frame: Frame) -> list[Tile]:
    """From what matters most."""
    token = f"{_ms(frame.token_p50_us)} / {_ms(frame.token_p99_us)}"
    power = pod_power_w(frame)
    sums = lane_sums(frame)
    lanes = f"{sums.running}" + (f" +{sums.waiting}" if sums.waiting else "")
    return [
        Tile("decode", amount(frame.decode_tokens_per_s), "tokens/s", "decode_tokens_per_s"),
        Tile("token p50/p99", token, "ms", "token_p99_us"),
        Tile("acceptance", amount(frame.acceptance_length, 2), "a round", "acceptance_length", 1),
        Tile("lanes", lanes, f"of {frame.most_lanes}", "running"),
        Tile("prompt", amount(frame.prompt_tokens_per_s), "tokens/s", "prompt_tokens_per_s", 3),
        Tile("power", amount(power), "W" if power is not None else "not measured", "power_w", 2),
    ]


def tile_lines(frame: Frame, trail: Trail, marks: Marks, width: int, height: int) -> list[Line]:
    """Three lines (title, value, curve), or fewer where there is no room for them."""
    tiles = tiles_of(frame)
    while len(tiles) > 1 and len(tiles) * (LEAST_TILE + GAP) - GAP > width:
        tiles.remove(max(tiles, key=lambda tile: tile.drop))
    room = (width + GAP) // len(tiles) - GAP
    rows: list[list[Span]] = [[], [], []]
    for tile in tiles:
        value = line(strong(tile.value), quiet(f" {tile.unit}"))
        drawn = curve(trail.pod(tile.figure, room), room, marks)
        for row, spans in zip(rows, ((quiet(tile.title),), value, drawn), strict=True):
            row += [*pad(spans, room, mark=marks.more), Span(" " * GAP)]
    lines = [tuple(row[:-1]) for row in rows][:height]
    return [*lines, BLANK] if height > len(lines) else lines


def _ms(time_us: float | None) -> str:
    if time_us is None:
        return "-"
    return f"{time_us / 1000:.1f}" if time_us < 10_000 else f"{time_us / 1000:,.0f}"
