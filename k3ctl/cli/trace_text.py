"""Traces, for a person and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from k3ctl.cli.bars import bar
from k3ctl.cli.table import count, cut, percent, table
from k3ctl.cli.trace_columns import LAYERS
from k3d.counted import counted
from k3d.placement.trace import TraceHeader
from k3d.placement.trace_stats import DECILES, Overlap, TraceStats

PLOT = 40


def show_document(header: TraceHeader, figures: TraceStats) -> dict[str, Any]:
    return {
        "source": header.source,
        "provenance": header.provenance,
        "tokens": figures.tokens,
        "picks": figures.picks,
        "experts_a_layer": header.experts,
        "experts_a_token": header.top_k,
        "weights": header.weights,
        "experts_total": figures.experts,
        "experts_never_chosen": figures.never,
        "hottest_share": {
            f"{part}%": share for part, share in zip(DECILES, figures.decile_share, strict=True)
        },
        "layers": [asdict(layer) for layer in figures.layers],
    }


def show_lines(header: TraceHeader, figures: TraceStats, layers: bool) -> list[str]:
    weights = ", with weights" if header.weights else ""
    lines = [
        f"{counted(figures.tokens, 'token')}, {counted(len(header.layers), 'layer')}, "
        f"{header.top_k} of {header.experts} experts each{weights}",
        cut(f"{header.provenance}, from {header.source or 'nothing said'}"),
        "",
        "the hottest experts take of all picks",
    ]
    rows = [
        [f"{part} %", percent(share), bar(share, 1.0, PLOT)]
        for part, share in zip(DECILES, figures.decile_share, strict=True)
    ]
    lines += table(["OF EXPERTS", "OF PICKS", ""], rows, "rr")
    lines += ["", f"{count(figures.never)} of {count(figures.experts)} experts were never chosen"]
    if layers:
        lines += ["", *LAYERS.lines(map(asdict, figures.layers))]
    return lines


def diff_document(a: TraceHeader, b: TraceHeader, found: Overlap) -> dict[str, Any]:
    layers = dict(zip((str(layer) for layer in a.layers), found.by_layer, strict=True))
    return {
        "sources": [a.source, b.source],
        "provenance": [a.provenance, b.provenance],
        "hot": found.hot,
        "shared": found.shared,
        "shared_by_chance": found.by_chance,
        "b_by_its_own": found.own_share,
        "b_by_a": found.other_share,
        "shared_by_layer": layers,
    }


def diff_lines(first: str, second: str, found: Overlap) -> list[str]:
    lost = found.own_share - found.other_share
    rows = [
        ["hot experts in both", percent(found.shared), bar(found.shared, 1.0, PLOT)],
        ["by chance", percent(found.by_chance), bar(found.by_chance, 1.0, PLOT)],
        ["B's picks in B's hot set", percent(found.own_share), bar(found.own_share, 1.0, PLOT)],
        ["B's picks in A's hot set", percent(found.other_share), bar(found.other_share, 1.0, PLOT)],
    ]
    return [
        cut(f"A {first}"),
        cut(f"B {second}"),
        f"the {count(found.hot)} most chosen experts of each",
        "",
        *table(["", "SHARE", ""], rows, " r"),
        "",
        f"a map made for A misses {percent(lost)} of B's picks that one made for B would have hot",
    ]
