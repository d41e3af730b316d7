"""Plans and measured costs, for a person and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from k3ctl.cli.table import count, counted, cut, duration_us, percent, table, wrapped
from k3ctl.client.placement_inputs import Inputs
from k3d.placement.costs import Costs
from k3d.placement.planners import Plan
from k3d.placement.policy import PlacementPolicy
from k3d.placement.simulator import Simulation


def costs_document(costs: Costs) -> list[dict[str, Any]]:
    return [asdict(cost) for cost in costs.tiers]


def costs_lines(costs: Costs) -> list[str]:
    """Where the costs are from, and what they are."""
    rows = [
        [
            cost.tier,
            f"{cost.call_us:.1f}",
            f"{cost.expert_us:.2f}",
            f"{cost.row_us:.2f}",
            cost.provenance,
            cost.source,
        ]
        for cost in costs.tiers
    ]
    headers = ["TIER", "CALL US", "EXPERT US", "ROW US", "LABEL", "FROM"]
    lines = [cut(line) for line in table(headers, rows, " rrr")]
    return lines + contention_lines(costs.contention)


def contention_lines(contention: float) -> list[str]:
    """What a layer waits for besides its slowest processor, when that is not nothing."""
    if not contention:
        return []
    share = percent(contention)
    return wrapped(
        f"contention {share}: a layer takes its slowest processor and {share} of what others take"
    )


def plan_document(
    inputs: Inputs, policy: PlacementPolicy, made: Plan, figures: Simulation, out: str | None
) -> dict[str, Any]:
    placed = made.placed
    return {
        "pod": inputs.pod.name,
        "policy": policy.name or policy.policy,
        "trace": str(inputs.trace_path),
        "trace_tokens": inputs.trace.tokens,
        "map": out,
        "digest": placed.digest,
        "order": list(made.order),
        "counts": placed.counts,
        "slots": dict(inputs.slots),
        "copies": len(placed.copies),
        "repaired": made.repaired,
        "notes": list(made.notes),
        "rows": figures.rows,
        "simulated_tokens": figures.tokens,
        "token_us": asdict(figures.token),
        "token_provenance": "modelled",
        "costs": costs_document(inputs.costs),
        "contention": inputs.costs.contention,
    }


def plan_lines(
    inputs: Inputs, policy: PlacementPolicy, made: Plan, figures: Simulation, out: str | None
) -> list[str]:
    layers = len(inputs.trace.layers)
    rows = [
        [
            use.tier,
            count(use.held),
            count(inputs.slots[use.tier]),
            f"{use.held / layers:.1f}",
            percent(use.share),
            f"{use.experts_a_call:.2f}",
        ]
        for use in figures.tiers
    ]
    headers = ["TIER", "EXPERTS", "SLOTS", "A LAYER", "OF PICKS", "A CALL"]
    token = figures.token
    lines = [
        f"{policy.name or policy.policy} for pod {inputs.pod.name}, from "
        f"{counted(inputs.trace.tokens, 'token')}",
        "",
        *table(headers, rows, " rrrrr"),
        "",
        f"experts take a {'token' if figures.rows == 1 else f'pass of {figures.rows} rows'} "
        f"{duration_us(token.mean_us)}, p99 {duration_us(token.p99_us)} (modelled)",
    ]
    for note in made.notes:
        lines += wrapped(note)
    if made.repaired:
        lines.append(f"{count(made.repaired)} experts were moved for the layers' bounds")
    lines += ["", *costs_lines(inputs.costs), ""]
    lines.append(f"map {out}" if out else "not written: give --out FILE.json")
    return lines


def measured_lines(figures: Mapping[str, Any], receipt_id: str | None) -> list[str]:
    rows = [
        [
            tier,
            f"{cost['call_us']:.1f}",
            f"{cost['expert_us']:.1f}",
            count(cost["hops"]),
            duration_us(cost["p50_us"]),
            percent(cost["residual"]),
        ]
        for tier, cost in figures["tiers"].items()
    ]
    headers = ["TIER", "CALL US", "EXPERT US", "HOPS", "HOP P50", "UNEXPLAINED"]
    simulated = ", simulated tiers" if figures.get("simulated") else ""
    kept = f"; receipt {receipt_id}" if receipt_id else ""
    return [
        *table(headers, rows, " rrrrr"),
        *contention_lines(figures["contention"]),
        "",
        f"{figures['provenance']}; pod {figures['pod']}, {counted(figures['sparks'], 'spark')}"
        f"{simulated}{kept}",
    ]
