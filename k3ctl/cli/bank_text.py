"""The census and the ledger, for a person and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from k3ctl.cli.table import count, cut, size, table, wrapped
from k3d.placement.census import Census, FormCounts
from k3d.placement.ledger import Ledger, TierLedger

GIB = 1 << 30


def census_document(census: Census) -> dict[str, Any]:
    """Every count and byte, with where each is from."""
    return {
        "source": census.source,
        "config": str(census.config),
        "index": None if census.index is None else str(census.index),
        "shards": census.shards,
        "tensors": census.tensors,
        "layers": census.layers,
        "moe_layers": census.moe_layers,
        "experts": census.experts,
        "experts_total": census.experts_total,
        "experts_a_token": census.top_k,
        "latent": census.latent,
        "forms": [asdict(form) for form in census.forms],
        "vision": None if census.vision is None else asdict(census.vision),
    }


def census_lines(census: Census) -> list[str]:
    lines = [
        f"{count(census.experts_total)} experts: {census.moe_layers} of {census.layers} layers "
        f"have {census.experts}, {census.top_k} a token",
        "",
    ]
    rows = [row for form in census.forms for row in _form_rows(form)]
    if census.vision is not None:
        vision = census.vision
        sizes = _bytes(vision.size_bytes)
        rows.append(["vision (not loaded)", count(vision.tensors), *sizes, vision.provenance])
    lines += table(["PART", "TENSORS", "BYTES", "SIZE", "LABEL"], rows, " rrr")
    named = "no index" if census.index is None else f"{count(census.tensors)} tensors"
    shards = "" if census.shards is None else f" in {census.shards} shards"
    return [
        *lines,
        "",
        *wrapped(f"from {census.source} of {census.config.parent}: {named}{shards}"),
    ]


def _form_rows(form: FormCounts) -> list[list[str]]:
    name = form.form if form.stored else f"{form.form}, recast"
    label = form.provenance
    return [
        [f"one expert, {name}", count(form.expert_tensors), *_bytes(form.expert_bytes), label],
        ["all experts", count(form.experts_tensors), *_bytes(form.experts_bytes), label],
        ["the rest of the text", count(form.other_tensors), *_bytes(form.other_bytes), label],
    ]


def _bytes(size_bytes: int | None) -> list[str]:
    """Exact, and in GiB where that reads well."""
    if size_bytes is not None and size_bytes >= GIB:
        return [count(size_bytes), f"{size_bytes / GIB:,.2f} GiB"]
    return [count(size_bytes), size(size_bytes)]


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """Every tier of every node; bytes exact."""
    return {
        "pod": ledger.pod,
        "model": asdict(ledger.model),
        "slices": ledger.slices,
        "tiers": [_tier_document(tier) for tier in ledger.tiers],
        "places": {**ledger.by_tier, "total": ledger.total},
        "spare": ledger.spare,
        "spare_bytes": ledger.spare * ledger.model.expert_bytes,
        "short": list(ledger.shortages),
    }


def _tier_document(tier: TierLedger) -> dict[str, Any]:
    memory = tier.memory
    return {
        "node": tier.node,
        "tier": tier.tier,
        "simulated": tier.simulated,
        "memory_bytes": None if memory is None else memory.size_bytes,
        "memory_provenance": None if memory is None else memory.provenance,
        "memory_note": "not in the description" if memory is None else memory.note,
        "reservations": [
            {
                "what": reservation.what,
                "size_bytes": reservation.size_bytes,
                "provenance": reservation.provenance,
                "note": reservation.note,
            }
            for reservation in tier.reservations
        ],
        "budget_bytes": tier.budget_bytes,
        "experts_fit": tier.fits,
        "experts_uneven": tier.uneven,
        "experts_by_slots": tier.described,
        "experts": tier.experts,
        "experts_provenance": tier.provenance,
        "left_bytes": tier.left_bytes,
        "short": tier.short,
    }


def ledger_lines(ledger: Ledger) -> list[str]:
    model = ledger.model
    lines = [
        f"pod {ledger.pod}: {count(model.experts_total)} experts of {count(model.expert_bytes)} B "
        f"({model.provenance}, {model.source})",
        "",
    ]
    groups = list(_groups(ledger.tiers))
    rows = [
        [
            name,
            tier.tier,
            _gib(tier.memory.size_bytes if tier.memory else None),
            _gib(tier.budget_bytes),
            count(tier.experts),
            _gib(tier.left_bytes),
            tier.provenance,
        ]
        for name, tier in groups
    ]
    headers = ["NODE", "TIER", "MEMORY", "BUDGET", "EXPERTS", "LEFT", "LABEL"]
    lines += table(headers, rows, "  rrrr")
    reserved = [
        [tier.tier, item.what, _gib(item.size_bytes), item.provenance, item.note]
        for _, tier in groups
        for item in tier.reservations
    ]
    if reserved:
        headers = ["TIER", "RESERVED FOR", "SIZE", "LABEL", "NOTE"]
        lines += ["", *(cut(line) for line in table(headers, reserved, "  r"))]
    lines.append("")
    lines += [
        f"{name}: {tier.uneven} more fit, but not as many of every layer"
        for name, tier in groups
        if tier.uneven
    ]
    lines += [
        f"{name}: the slots of {tier.tier} are for {count(tier.described)}"
        for name, tier in groups
        if tier.described != tier.experts
    ]
    held = ", ".join(f"{tier} {count(number)}" for tier, number in ledger.by_tier.items())
    lines += wrapped(f"places: {held}; {count(ledger.total)} in all")
    if ledger.spare >= 0:
        spare = ledger.spare * model.expert_bytes
        lines.append(f"{count(ledger.spare)} to spare ({_gib(spare)})")
    else:
        lines.append(f"{count(-ledger.spare)} short")
    return lines


def _groups(tiers: Iterable[TierLedger]) -> Iterable[tuple[str, TierLedger]]:
    """Nodes that differ in their name alone share a line."""
    groups: dict[tuple, list[TierLedger]] = {}
    for tier in tiers:
        facts = tuple(value for key, value in vars(tier).items() if key != "node")
        groups.setdefault(facts, []).append(tier)
    for members in groups.values():
        first, last = members[0], members[-1]
        many = f"{first.node}..{last.node}"
        yield (first.node if len(members) == 1 else many), first


def _gib(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "-"
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB else size(size_bytes)
