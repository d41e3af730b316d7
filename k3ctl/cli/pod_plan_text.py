"""The plan of a pod, for a person."""

from __future__ import annotations

from k3ctl.cli.table import count, size, table
from k3ctl.client.pod_plan import PodPlan
from k3d.counted import counted
from k3d.placement.pod import SPARK_TIER


def plan_lines(plan: PodPlan) -> list[str]:
    """What would run where, and how the experts fit."""
    pod, facts = plan.description, plan.facts
    sparks = counted(pod.slice_count, "spark")
    lines = [
        f"pod {pod.name}: one Station"
        + (f", {sparks} of 1/{pod.slice_count} each" if pod.sparks else ""),
        f"model {pod.model or 'as described'}: {counted(facts.layers, 'layer')}, "
        f"{facts.moe_layers} of them with {count(facts.experts)} experts of "
        f"{size(facts.expert_bytes)}",
        f"placement {pod.placement}, transport {pod.transport}, {pod.dtype}, chunk {pod.chunk}",
        "",
    ]
    starts = {node.name: _start(plan, node.name) for node in pod.nodes}
    rows = [
        [
            tier.node,
            tier.tier,
            count(tier.slots),
            count(tier.experts),
            size(tier.memory_bytes),
            starts[tier.node],
        ]
        for tier in plan.tiers
    ]
    headers = ["NODE", "TIER", "SLOTS", "EXPERTS", "MEMORY", "START"]
    lines += table(headers, rows, right="  rrr")
    lines += [
        "",
        f"{count(plan.slots)} slots for {count(plan.experts)} experts, "
        f"{count(plan.slots - plan.experts)} to spare",
    ]
    if pod.slice_count > 1 and SPARK_TIER in pod.slots:
        lines.append(f"a spark's slot holds 1/{pod.slice_count} of an expert")
    lines.append("memory is modelled: experts x bytes of one, over the slices on a spark")
    if any(tier.simulated for tier in plan.tiers):
        lines.append("the tiers are simulated: all of them are this machine's memory")
    lines.append("nothing was started (--dry-run)")
    return lines


def _start(plan: PodPlan, name: str) -> str:
    node = plan.description.node(name)
    if node.role == "spark" and plan.description.transport == "inproc":
        return "inside the Station"
    return "here" if plan.starts_here(node) else f"on {node.host}"
