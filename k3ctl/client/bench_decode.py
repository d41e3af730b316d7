"""`k3ctl bench decode`: plain against drafted through the running Station, in turns."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from k3ctl.client.answer_figures import (
    DEFINITIONS,
    acceptance_length,
    figures_of,
    median,
    pooled_tokens_per_s,
    rounded,
)
from k3ctl.client.daemon import Daemon
from k3ctl.client.engine_counts import Counted, counts_now, fit_line
from k3ctl.client.held_out import HeldOut
from k3ctl.client.timed_answer import TimedAnswer, take_answer
from k3d.counted import counted
from k3d.errors import K3Error

TEXT_TOKENS = 40
FORMULA = "pass(r) = fixed + row x r, least squares over the points"


def bench_decode(
    station: Daemon,
    held_out: HeldOut,
    *,
    prompts: int,
    tokens: int,
    rounds: int,
    progress: Callable[..., None],
) -> dict[str, Any]:
    """Figures of both sides, acceptance by position and what a pass costs by its rows.

    Raises K3Error when the sides gave different tokens: a bench of wrong answers is refused.
    """
    engine = station.engine()
    sides = sides_of(engine)
    answers: dict[str, list[list[TimedAnswer]]] = {side: [] for side in sides}
    sums = Counted()
    salt = uuid.uuid4().hex[:8]
    before = counts_now(station)
    for turn in range(rounds):
        asked = f"{counted(prompts, 'question')}, {' and '.join(sides)}"
        progress(f"round {turn + 1} of {rounds}: {asked}", turn / (2 * rounds))
        for side in sides:
            answers[side].append([])
        for index in range(prompts):
            order = list(sides) if (turn + index) % 2 == 0 else list(reversed(list(sides)))
            for side in order:
                body = {
                    "messages": [{"role": "user", "content": held_out.question(index)}],
                    "max_tokens": tokens, "draft_rows": sides[side], "cache_salt": salt,
                }  # fmt: skip
                answers[side][-1].append(take_answer(station, body))
                after = counts_now(station, before["finished"] + before["failed"] + 1)
                if side == "drafted":
                    sums.add(before, after)
                before = after
    if engine["synthetic_acceptance"] is None:
        _same_tokens(answers)
    return {
        **labels_of(engine),
        "prompts": prompts,
        "prompts_from": held_out.source,
        "tokens": tokens,
        "rounds": rounds,
        **_speeds(answers),
        "times": {side: _times(turns) for side, turns in answers.items()},
        "acceptance_length": acceptance_length(
            [answer for turn in answers.get("drafted", []) for answer in turn]
        ),
        "acceptance_by_position": sums.acceptance(),
        "pass": _pass_costs(station, held_out, engine, rounds, progress),
        "definitions": {
            **{name: DEFINITIONS[name] for name in ("ttft_s", "tpot_s", "acceptance_length")},
            "tokens_per_s": "tokens after the first of every answer / the time between the first "
            "and the last token, at the client, answers one by one; the median over rounds",
        },
    }


def sides_of(engine: dict[str, Any]) -> dict[str, int | None]:
    """draft_rows by side; without a drafter there is only plain, and with made-up acceptance
    every round has the drafts that are made up."""
    if engine["synthetic_acceptance"] is not None:
        return {"drafted": None}
    return {"plain": 1} if engine["draft_block"] is None else {"plain": 1, "drafted": None}


def labels_of(engine: dict[str, Any]) -> dict[str, Any]:
    """How the figures must be called: made-up acceptance measures no model."""
    synthetic = engine["synthetic_acceptance"]
    return {
        "provenance": "measured" if synthetic is None else "simulated",
        "synthetic_acceptance": synthetic,
        "measured_through": "/chat of the running Station",
    }


def _speeds(answers: dict[str, list[list[TimedAnswer]]]) -> dict[str, Any]:
    by_round = {
        side: [speed for turn in turns if (speed := pooled_tokens_per_s(turn)) is not None]
        for side, turns in answers.items()
    }
    speeds = {side: median(values) for side, values in by_round.items()}
    plain, drafted = speeds.get("plain"), speeds.get("drafted")
    return {
        "tokens_per_s": {side: rounded(speed) for side, speed in speeds.items()},
        "tokens_per_s_by_round": {
            side: [round(value, 2) for value in values] for side, values in by_round.items()
        },
        "ratio": rounded(drafted / plain, 3) if plain and drafted else None,
    }


def _times(turns: list[list[TimedAnswer]]) -> dict[str, Any]:
    figures = figures_of([answer for turn in turns for answer in turn])
    return {name: figures[name] for name in ("ttft_s", "tpot_s")}


def _same_tokens(answers: dict[str, list[list[TimedAnswer]]]) -> None:
    turns = [turn for side in answers.values() for turn in side]
    if any([a.ids for a in turn] != [a.ids for a in turns[0]] for turn in turns):
        raise K3Error(
            "plain and drafted decoding gave different tokens",
            hint="see which: k3ctl check",
        )


def _pass_costs(
    station: Daemon,
    held_out: HeldOut,
    engine: dict[str, Any],
    rounds: int,
    progress: Callable[..., None],
) -> dict[str, Any]:
    """Passes of 1 row to a block and its anchor, one lane, row counts in turns."""
    fixed = engine["synthetic_acceptance"] is not None  # by the made-up length
    most = 0 if fixed else 1 + (engine["draft_block"] or 0)
    passes: dict[int, list[tuple[float, float]]] = {rows: [] for rows in range(1, most + 1)}
    blocks: list[float] = []
    prompt = held_out.text(0, TEXT_TOKENS)
    for turn in range(rounds if passes else 0):
        part = (rounds + turn) / (2 * rounds)  # the questions were the other half
        progress(f"round {turn + 1} of {rounds}: passes of 1 to {most} rows", part)
        for rows, found in passes.items():
            tokens = 8 + 2 * rows
            body = {
                "prompt_ids": prompt, "max_tokens": tokens, "min_tokens": tokens,
                "draft_rows": rows,
            }  # fmt: skip
            before = counts_now(station)
            take_answer(station, body)
            sums = Counted()
            ended = before["finished"] + before["failed"] + 1
            sums.add(before, counts_now(station, ended))
            if sums.pass_s is not None and sums.mean_rows is not None:
                found.append((sums.mean_rows, 1e3 * sums.pass_s))
            if sums.block_s is not None:
                blocks.append(1e3 * sums.block_s)
    points = [
        (median([x for x, _ in found]) or 0.0, median([y for _, y in found]) or 0.0)
        for found in passes.values()
        if found
    ]
    fit = fit_line(points)
    cost = station.engine()["counts"]["cost"]
    return {
        "points": [{"rows": round(x, 2), "pass_ms": round(y, 3)} for x, y in points],
        "fit": None
        if fit is None
        else {
            "provenance": "modelled",
            "formula": FORMULA,
            "fixed_ms": round(fit["fixed"], 3),
            "row_ms": round(fit["slope"], 3),
            "worst_error": round(fit["worst_error"], 4),
        },
        "engine_line": {
            "measured": cost["measured"],
            "fixed_ms": round(1e3 * cost["fixed_s"], 3),
            "row_ms": round(1e3 * cost["row_s"], 3),
            "draft_ms": round(1e3 * cost["draft_s"], 3),
        },
        "draft_block_ms": rounded(median(blocks), 3),
    }
