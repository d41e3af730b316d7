"""Rates of a frame: what the engine counted between two looks."""

from __future__ import annotations

from typing import Any

from k3d.engine.counts import EngineCounts


def rates(now: EngineCounts, before: EngineCounts, interval_s: float) -> dict[str, Any]:
    """The keys of a frame that come from the engine's counters. What did not happen in the
    interval is None."""
    rounds = now.rounds - before.rounds
    accepted = sum(now.accepted) - sum(before.accepted)
    return {
        "decode_tokens_per_s": _rate(now.decode_tokens - before.decode_tokens, interval_s),
        "prompt_tokens_per_s": _rate(now.prompt_tokens - before.prompt_tokens, interval_s),
        "decode_tokens": now.decode_tokens,
        "prompt_tokens": now.prompt_tokens,
        "acceptance_length": round((accepted + rounds) / rounds, 3) if rounds else None,
        "running": now.running,
        "waiting": now.waiting,
        "finished": now.finished,
        "failed": now.failed,
        "refused": now.refused,
        "preempted": now.preempted,
        "pages": now.pages,
        "free_pages": now.free_pages,
        "prefix_hit_share": _prefix_share(now, before),
    }


def _rate(tokens: int, interval_s: float) -> float | None:
    return round(tokens / interval_s, 2) if tokens > 0 and interval_s > 0 else None


def _prefix_share(now: EngineCounts, before: EngineCounts) -> float | None:
    if now.cache is None or before.cache is None:
        return None
    asked = now.cache.asked_tokens - before.cache.asked_tokens
    found = now.cache.found_tokens - before.cache.found_tokens
    return round(found / asked, 4) if asked > 0 else None
