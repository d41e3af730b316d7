"""The Station's status document, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3ctl.cli.output import Output
from k3ctl.cli.placement_swap_text import progress_line
from k3ctl.cli.reasons import about
from k3ctl.cli.table import (
    count,
    cut,
    duration_us,
    percent,
    seconds,
    size,
    table,
    wrapped,
)

Document = Mapping[str, Any]


def status_lines(document: Document, output: Output) -> list[str]:
    """Nodes, tiers, hops and rates. A figure that is not there yet is a dash."""
    model = document.get("model") or {}
    lines = [f"pod {document.get('pod')}: {output.state(str(document.get('state')))}"]
    if document.get("reason"):
        lines += wrapped(str(document["reason"]))
    lines += [
        cut(
            f"model {model.get('name')}, {model.get('dtype')}, digest "
            f"{str(model.get('digest'))[:12]}; epoch {document.get('epoch')}"
        ),
        cut(f"placement {document.get('placement')}, transport {document.get('transport')}"),
        *_swap(document),
        *_api(document),
        "",
        *_node_table(document, output),
        "",
        *_tier_table(document),
        "",
        *_rates(document),
        *_labels(document),
    ]
    return lines


def _swap(document: Document) -> list[str]:
    swap = document.get("swap")
    return wrapped(f"a swap is {progress_line(swap)}") if swap else []


def _api(document: Document) -> list[str]:
    url = (document.get("api") or {}).get("url")
    return [cut(f"API {url}")] if url else []


def _node_table(document: Document, output: Output) -> list[str]:
    rows = []
    for node in document.get("nodes", []):
        used, slots = node.get("slots_used"), node.get("slots")
        rows.append(
            [
                str(node.get("name")),
                output.state(str(node.get("state"))),
                str(node.get("slice") or "-"),
                f"{count(used)}/{count(slots)}",
                size(node.get("rss_bytes")),
                seconds(node.get("progress_age_s")),
            ]
        )
    headers = ["NODE", "STATE", "SLICE", "SLOTS", "MEMORY", "PROGRESS"]
    lines = table(headers, rows, right="   rrr")
    for node in document.get("nodes", []):
        if node.get("reason"):
            lines += wrapped(about(str(node.get("name")), str(node["reason"])))
    return lines


def _tier_table(document: Document) -> list[str]:
    rows = []
    for tier in document.get("tiers", []):
        hop = tier.get("hop_us") or {}
        rows.append(
            [
                str(tier.get("name")),
                count(tier.get("experts")),
                count(tier.get("slots")),
                percent(tier.get("hit_share")),
                duration_us(hop.get("p50")),
                duration_us(hop.get("p99")),
                count(hop.get("count")),
            ]
        )
    headers = ["TIER", "EXPERTS", "SLOTS", "HIT SHARE", "HOP P50", "HOP P99", "HOPS"]
    return table(headers, rows, right=" rrrrrr")


def _rates(document: Document) -> list[str]:
    rates, requests = document.get("tokens_per_s") or {}, document.get("requests") or {}
    shown = [
        f"{name} {'-' if rates.get(name) is None else f'{rates[name]:.1f}'}"
        for name in ("decode", "prompt")
    ]
    states = ", ".join(
        f"{requests.get(name, 0)} {name}" for name in ("running", "waiting", "finished", "failed")
    )
    return [f"tokens/s: {', '.join(shown)}", f"requests: {states}", *_drafting(document)]


def _drafting(document: Document) -> list[str]:
    drafting = document.get("drafting")
    if not drafting:
        return []
    length, cost = drafting.get("acceptance_length"), drafting.get("pass_ms")
    shown = f"drafts: acceptance length {'-' if length is None else f'{length:.2f}'}"
    if cost:
        shown += f", a pass of r rows {cost['fixed']:.1f} + {cost['row']:.1f} r ms"
    made_up = drafting.get("synthetic_acceptance")
    warning = [f"SYNTHETIC ACCEPTANCE {made_up}: answers are not the model's"] if made_up else []
    return [cut(shown), *warning]


def _labels(document: Document) -> list[str]:
    """Where the figures come from, said with them."""
    simulated = [
        str(tier.get("name")) for tier in document.get("tiers", []) if tier.get("simulated")
    ]
    lines = [f"figures: {document.get('provenance', 'measured')}"]
    if simulated:
        lines.append(f"simulated tiers, in this machine's memory: {', '.join(simulated)}")
    return lines
