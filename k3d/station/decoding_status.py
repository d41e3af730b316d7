"""How the pod decodes, as the status document shows it."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Any

from k3d.engine.counts import EngineCounts
from k3d.engine.engine import Engine


def decoding(engine: Engine, counts: EngineCounts) -> dict[str, Any]:
    """The keys `lanes`, `prefixes` and `drafting`; what was not measured yet is null."""
    return {
        "lanes": {
            "most": engine.limits.lanes,
            "running": counts.running,
            "preempted": counts.preempted,
            "pages": counts.pages,
            "free_pages": counts.free_pages,
        },
        "prefixes": _prefixes(counts),
        "drafting": _drafting(engine, counts),
    }


def _prefixes(counts: EngineCounts) -> dict[str, Any] | None:
    cache = counts.cache
    if cache is None:
        return None
    return {
        "asked_tokens": cache.asked_tokens,
        "found_tokens": cache.found_tokens,
        "pages": cache.pages,
        "snapshots": cache.snapshots,
        "snapshot_bytes": cache.snapshot_bytes,
        "evicted_pages": cache.evicted_pages,
    }


def _drafting(engine: Engine, counts: EngineCounts) -> dict[str, Any] | None:
    drafter = engine.drafter
    if drafter is None:
        return None
    line = counts.cost
    rates = [a / v for a, v in zip(counts.accepted, counts.verified, strict=True) if v]
    return {
        "most_drafts": drafter.block,
        "rounds": counts.rounds,
        "verified": list(counts.verified[: drafter.block]),
        "accepted": list(counts.accepted[: drafter.block]),
        "survival": [round(each, 4) for each in accumulate(rates, mul)],
        "rows": list(counts.rows[1 : drafter.block + 2]),
        "acceptance_length": acceptance_length(counts),
        "draft_s": round(counts.draft_s, 3),
        "pass_ms": {
            "fixed": round(1e3 * line.fixed_s, 3),
            "row": round(1e3 * line.row_s, 3),
            "draft": round(1e3 * line.draft_s, 3),
        }
        if line.measured
        else None,
        "synthetic_acceptance": engine.synthetic_acceptance,
    }


def acceptance_length(counts: EngineCounts) -> float | None:
    """Tokens a round, its own token counted."""
    if not counts.rounds:
        return None
    return round((sum(counts.accepted) + counts.rounds) / counts.rounds, 3)
