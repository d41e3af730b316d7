"""`k3ctl bench lanes` and `k3ctl bench prompt`: many at once, and prompts by their length."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from k3ctl.client.answer_figures import DEFINITIONS, figures_of, median, rounded, spread
from k3ctl.client.bench_decode import TEXT_TOKENS, labels_of, sides_of
from k3ctl.client.daemon import Daemon
from k3ctl.client.held_out import HeldOut
from k3ctl.client.timed_answer import TimedAnswer, take_answer, take_answers
from k3d.errors import ConfigError

Progress = Callable[..., None]
"""Takes words, and the part of the work that is done."""


def bench_lanes(
    station: Daemon,
    held_out: HeldOut,
    *,
    lanes: Sequence[int],
    tokens: int,
    rounds: int,
    progress: Progress,
) -> dict[str, Any]:
    """Tokens a second of a user and of all, by lanes, plain and drafted in turns. Each lane goes
    on with another running text, which has no end of its own, and writes exactly `tokens`."""
    engine, salt = station.engine(), uuid.uuid4().hex[:8]
    most = engine["lanes"]
    if max(lanes) > most:
        raise ConfigError(
            f"the pod computes {most} lanes at once, not {max(lanes)}",
            hint="ask for fewer, or give the description more lanes",
        )
    sides = sides_of(engine)
    found: dict[tuple[int, str], list[list[TimedAnswer]]] = {}
    steps, done = rounds * len(lanes) * len(sides), 0
    for turn in range(rounds):
        for count in lanes:
            for side, rows in sides.items():
                progress(f"round {turn + 1} of {rounds}: lanes: {count}, {side}", done / steps)
                done += 1
                bodies = [
                    {
                        "prompt_ids": held_out.text(index, TEXT_TOKENS), "cache_salt": salt,
                        "max_tokens": tokens, "min_tokens": tokens, "draft_rows": rows,
                    }
                    for index in range(count)
                ]  # fmt: skip
                found.setdefault((count, side), []).append(take_answers(station, bodies, count))
    return {
        **labels_of(engine),
        "prompts_from": held_out.source,
        "prompt_tokens": TEXT_TOKENS,
        "tokens": tokens,
        "rounds": rounds,
        "points": [
            {"lanes": count, "decoding": side, **_middle([figures_of(each) for each in turns])}
            for (count, side), turns in found.items()
        ],
        "definitions": DEFINITIONS,
    }


def bench_prompt(
    station: Daemon,
    held_out: HeldOut,
    *,
    lengths: Sequence[int],
    rounds: int,
    progress: Progress,
) -> dict[str, Any]:
    """Tokens of a prompt a second by its length, read anew and again with its prefix kept."""
    engine = station.engine()
    if max(lengths) >= engine["context"]:
        raise ConfigError(
            f"a prompt of {max(lengths)} tokens does not fit a context of {engine['context']}",
            hint="ask for shorter ones",
        )
    found: dict[tuple[int, str], list[TimedAnswer]] = {}
    steps, done = rounds * len(lengths), 0
    for turn in range(rounds):
        for length in lengths:
            salt = uuid.uuid4().hex[:8]
            body = {
                "prompt_ids": held_out.text(turn, length), "max_tokens": 1, "cache_salt": salt,
            }  # fmt: skip
            for cache in ("cold", "warm") if engine["reuses_prefixes"] else ("cold",):
                progress(f"round {turn + 1} of {rounds}: {length} tokens, {cache}", done / steps)
                found.setdefault((length, cache), []).append(take_answer(station, body))
            done += 1
    return {
        **labels_of(engine),
        "prompts_from": held_out.source,
        "chunk": engine["chunk"],
        "rounds": rounds,
        "points": [
            {"prompt_tokens": length, "cache": cache, **_prompt_figures(length, answers)}
            for (length, cache), answers in found.items()
        ],
        "definitions": {
            "ttft_s": DEFINITIONS["ttft_s"],
            "tokens_per_s": "prompt tokens / TTFT, reused ones included; the median over rounds",
            "cold": "no prefix of it was asked before",
            "warm": "the same prompt again: its full pages are reused, the rest is read anew",
        },
    }


def _prompt_figures(length: int, answers: Sequence[TimedAnswer]) -> dict[str, Any]:
    first = [answer.first_s for answer in answers if answer.first_s]
    return {
        "ttft_s": spread(first),
        "tokens_per_s": rounded(median([length / seconds for seconds in first])),
        "cached_tokens": max(int(answer.done["cached_tokens"]) for answer in answers),
    }


def _middle(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The round whose total speed is the median one (of two, the slower)."""
    ordered = sorted(rounds, key=lambda each: each["tokens_per_s_total"] or 0.0)
    return ordered[(len(ordered) - 1) // 2]
