"""Simulations side by side, for a person and as JSON. Every figure of them is modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from k3ctl.cli.bars import bar
from k3ctl.cli.placement_text import costs_document, costs_lines
from k3ctl.cli.table import count, counted, cut, duration_us, percent, table
from k3ctl.client.placement_inputs import Inputs
from k3d.placement.simulator import Simulation

Found = Sequence[tuple[str, Simulation]]
PLOT = 28
NAME = 16


def simulate_document(inputs: Inputs, found: Found, station_us: float | None) -> dict[str, Any]:
    return {
        "pod": inputs.pod.name,
        "trace": str(inputs.trace_path),
        "trace_tokens": inputs.trace.tokens,
        "spark_experts": inputs.costs.cut,
        "provenance": "modelled",
        "station_us": station_us,
        "station_provenance": None if station_us is None else "assumed",
        "costs": costs_document(inputs.costs),
        "contention": inputs.costs.contention,
        "maps": [
            {
                "map": name,
                "rows": figures.rows,
                "layers": figures.layers,
                "token_us": asdict(figures.token),
                "floor_us": figures.floor_us,
                "tokens_per_s": (None if station_us is None else figures.tokens_per_s(station_us)),
                "tiers": [asdict(use) for use in figures.tiers],
                "busiest_spark": None if figures.busiest is None else asdict(figures.busiest),
                "by_rows": [asdict(cost) for cost in figures.by_rows],
                "row_line_us": dict(zip(("start", "each"), figures.row_line, strict=True)),
            }
            for name, figures in found
        ],
    }


def simulate_lines(inputs: Inputs, found: Found, station_us: float | None) -> list[str]:
    rows_of_pass = found[0][1].rows
    what = "token" if rows_of_pass == 1 else f"pass of {rows_of_pass} rows"
    lines = [
        f"experts' time of a {what} on pod {inputs.pod.name}, "
        f"{counted(inputs.trace.tokens, 'token')} replayed (modelled)",
        "",
    ]
    most = max(figures.token.p99_us for _, figures in found)
    rows = [
        [
            _short(name),
            duration_us(figures.token.mean_us),
            duration_us(figures.token.p50_us),
            duration_us(figures.token.p99_us),
            bar(figures.token.mean_us, most, PLOT),
        ]
        for name, figures in found
    ]
    lines += table(["MAP", "MEAN", "P50", "P99", ""], rows, " rrr")
    lines += ["", *_tier_table(found), "", *_more_table(found, station_us)]
    lines += ["", *costs_lines(inputs.costs)]
    if station_us is not None:
        lines.append(f"the Station's own {station_us:g} us a layer are assumed")
    if found[0][1].busiest is not None:
        lines.append(f"the sparks hold experts {inputs.costs.cut}; SLICED and WHOLE are of the")
        lines.append("spark that a layer waits for, if they held them so")
    return lines


def _tier_table(found: Found) -> list[str]:
    """A line a map and tier."""
    rows = [
        [
            _short(name) if index == 0 else "",
            use.tier,
            count(use.held),
            percent(use.share),
            percent(use.called),
            f"{use.experts_a_call:.2f}",
            duration_us(use.time_us),
            percent(use.slowest),
        ]
        for name, figures in found
        for index, use in enumerate(figures.tiers)
    ]
    headers = ["MAP", "TIER", "HELD", "PICKS", "CALLED", "A CALL", "TIME", "SLOWEST"]
    return table(headers, rows, "  rrrrrr")


def _more_table(found: Found, station_us: float | None) -> list[str]:
    headers = ["MAP", "FLOOR", "PASS OF R ROWS", "SLICED P99", "WHOLE P99", "TOKENS/S"]
    rows = []
    for name, figures in found:
        start, each = figures.row_line
        busiest = figures.busiest
        rate = None if station_us is None else figures.tokens_per_s(station_us)
        rows.append(
            [
                _short(name),
                duration_us(figures.floor_us),
                f"{start / 1000:.1f} + {each / 1000:.2f} r ms",
                duration_us(None if busiest is None else busiest.sliced.p99_us),
                duration_us(None if busiest is None else busiest.whole.p99_us),
                "-" if rate is None else f"{rate:.1f}",
            ]
        )
    return table(headers, rows, " rrrrr")


def _short(name: str) -> str:
    return cut(Path(name).name, NAME)
