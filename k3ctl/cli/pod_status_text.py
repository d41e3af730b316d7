"""The Station's status document, for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from k3ctl.cli.output import Output, state_shown
from k3ctl.cli.placement_swap_text import progress_line
from k3ctl.cli.reasons import about
from k3ctl.cli.table import (
    Column,
    Columns,
    count,
    cut,
    duration_us,
    listing,
    percent,
    seconds,
    size,
    wrapped,
)
from k3ctl.client.map_name import in_force_shown

Document = Mapping[str, Any]


def _hop(figure: str) -> Callable[[Document], Any]:
    return lambda tier: (tier.get("hop_us") or {}).get(figure)


NODES = Columns(
    "nodes",
    (
        Column("node", "name"),
        Column("role", "role"),
        Column("state", "state", state_shown),
        Column("reason", "reason"),
        Column("pid", "pid", right=True),
        Column("slice", "slice"),
        Column("slots_used", "slots_used", count, right=True),
        Column("slots", "slots", count, right=True),
        Column("memory", "rss_bytes", size, right=True),
        Column("progress", "progress_age_s", seconds, right=True),
    ),
)
_SLOTS = Column(
    "slots",
    lambda node: f"{count(node.get('slots_used'))}/{count(node.get('slots'))}",
    right=True,
)
TIERS = Columns(
    "tiers",
    (
        Column("tier", "name"),
        Column("experts", "experts", count, right=True),
        Column("slots", "slots", count, right=True),
        Column("hit_share", "hit_share", percent, right=True),
        Column("hop_p50", _hop("p50"), duration_us, right=True),
        Column("hop_p99", _hop("p99"), duration_us, right=True),
        Column("hops", _hop("count"), count, right=True),
    ),
)


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
        cut(f"placement {in_force_shown(document)}; transport {document.get('transport')}"),
        *_swap(document),
        *_api(document),
        "",
        *_node_lines(document.get("nodes", [])),
        "",
        *TIERS.lines(document.get("tiers", [])),
        "",
        *_rates(document),
        *_labels(document),
    ]
    return lines


def _swap(document: Document) -> list[str]:
    swap, replacement = document.get("swap"), document.get("replacement")
    lines = wrapped(f"a swap is {progress_line(swap)}") if swap else []
    return lines + (wrapped(str(replacement.get("sentence"))) if replacement else [])


def _api(document: Document) -> list[str]:
    url = (document.get("api") or {}).get("url")
    return [cut(f"API {url}")] if url else []


def _node_lines(nodes: Sequence[Document]) -> list[str]:
    columns = [*NODES.some("node", "state", "slice"), _SLOTS, *NODES.some("memory", "progress")]
    lines = listing(columns, nodes)
    for node in nodes:
        if node.get("reason"):
            lines += wrapped(about(str(node.get("name")), str(node["reason"])))
    return lines


def _rates(document: Document) -> list[str]:
    rates, requests = document.get("tokens_per_s") or {}, document.get("requests") or {}
    shown = [
        f"{name} {'-' if rates.get(name) is None else f'{rates[name]:.1f}'}"
        for name in ("decode", "prompt")
    ]
    states = ", ".join(
        f"{requests.get(name, 0)} {name}" for name in ("running", "waiting", "finished", "failed")
    )
    rate = f"tokens/s: {', '.join(shown)}, over the time spent in passes"
    return [rate, f"requests: {states}", *_drafting(document)]


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
    lines = [f"figures: {document.get('provenance', 'measured')}, since the Station started"]
    if simulated:
        lines.append(f"simulated tiers, in this machine's memory: {', '.join(simulated)}")
    return lines
