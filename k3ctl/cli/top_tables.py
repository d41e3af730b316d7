"""The tables of k3ctl top. Their rows are those of a frame's document, in base units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from k3ctl.cli.output import state_shown
from k3ctl.cli.table import Column, Columns, count, duration_us, percent, seconds, size

Row = Mapping[str, Any]


def sensor(key: str) -> Callable[[Row], Any]:
    """A figure of a node's sensors."""

    def read(row: Row) -> Any:
        return (row.get("sensors") or {}).get(key)

    return read


def watts(power_w: float | None) -> str:
    return "-" if power_w is None else f"{power_w:,.0f} W"


def celsius(temperature_c: float | None) -> str:
    return "-" if temperature_c is None else f"{temperature_c:.0f} C"


def rate(per_s: float | None) -> str:
    """Tokens a second, or any figure of about three digits."""
    return "-" if per_s is None else f"{per_s:,.1f}"


def length(tokens: float | None) -> str:
    """An acceptance length."""
    return "-" if tokens is None else f"{tokens:.2f}"


NODES = Columns(
    "nodes",
    (
        Column("node", "name"),
        Column("state", "state", state_shown),
        Column("memory", "rss_bytes", size, right=True),
        Column("hop_p50", "hop_p50_us", duration_us, right=True),
        Column("hop_p99", "hop_p99_us", duration_us, right=True),
        Column("hops", "hops", count, right=True),
        Column("power", sensor("power_w"), watts, right=True),
        Column("temp", sensor("temperature_c"), celsius, right=True),
        Column("load", sensor("busy_share"), percent, right=True),
        Column("age", "progress_age_s", seconds, right=True),
    ),
)
TIERS = Columns(
    "tiers",
    (
        Column("tier", "name"),
        Column("experts", "experts", count, right=True),
        Column("slots", "slots", count, right=True),
        Column("hit_share", "hit_share", percent, right=True),
        Column("hop_p50", "hop_p50_us", duration_us, right=True),
        Column("hop_p99", "hop_p99_us", duration_us, right=True),
        Column("hops", "hops", count, right=True),
        Column("busy", "busy_share", percent, right=True),
    ),
)
LANES = Columns(
    "lanes",
    (
        Column("lane", "id"),
        Column("phase", "phase"),
        Column("source", "source"),
        Column("age", "age_s", seconds, right=True),
        Column("prompt", "prompt_tokens", count, right=True),
        Column("reused", "cached_tokens", count, right=True),
        Column("written", "written_tokens", count, right=True),
        Column("rate", "tokens_per_s", rate, right=True, header="TOKENS/S"),
        Column("rows", "rows", count, right=True),
        Column("acceptance", "acceptance_length", length, right=True, header="ACCEPTED"),
    ),
)
# What goes first where the terminal is narrow.
DISPENSABLE = ("slots", "hops", "source", "reused", "age", "rows", "load", "temp", "memory")
