"""What `k3ctl check` asks, in which ways, and how two answers are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from k3ctl.client.held_out import HeldOut
from k3d.counted import counted

Rows = int | Literal["auto", "mixed"]
Cache = Literal["cold", "warm"]
SEEDED = {"temperature": 0.9, "top_p": 0.95, "top_k": 40}
MOST_ROWS = 8
SEVERAL_LANES = 8
MIXED: tuple[int | None, ...] = (None, 1, 3, 8, 5, None, 2, 7, 4, 6)
"""Rows of neighbouring lanes, where each lane has its own."""
LONG_CASES = 3
LONG_TOKENS = 112
"""Answers for a pod that is short of memory: they grow over pages while others want some."""


@dataclass(frozen=True)
class Case:
    """A prompt with its sampling; `request` is the body for /chat, but for how it is decoded."""

    name: str
    request: dict[str, Any]

    def body(self, rows: int | None, salt: str) -> dict[str, Any]:
        """The request decoded with fixed rows, or those that the engine chooses (None)."""
        return {**self.request, "logprobs": 2, "draft_rows": rows, "cache_salt": salt}


@dataclass(frozen=True)
class Variant:
    """A way to decode. rows auto: the engine chooses; mixed: each lane has its own."""

    rows: Rows
    lanes: int
    cache: Cache

    @property
    def name(self) -> str:
        lanes = counted(self.lanes, "lane") + ("" if self.lanes == 1 else ", staggered")
        rows = f"{self.rows} rows" if isinstance(self.rows, str) else counted(self.rows, "row")
        return f"{rows}, {lanes}, {self.cache} prefix cache"

    def rows_of(self, index: int) -> int | None:
        """Rows of the request number `index`; None: the engine chooses."""
        if self.rows == "mixed":
            return MIXED[index % len(MIXED)]
        return None if self.rows == "auto" else self.rows


@dataclass(frozen=True)
class Answered:
    """Token ids, with log probabilities and margins where they came."""

    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...] = ()
    margins: tuple[float | None, ...] = ()

    def at(self, index: int) -> tuple[int | None, float | None]:
        """Token and margin; None where the answer has ended."""
        if index >= len(self.ids):
            return None, None
        return self.ids[index], self.margins[index] if index < len(self.margins) else None


@dataclass(frozen=True)
class Difference:
    """The first token that another way of decoding gave differently. A token is None where that
    answer had ended; a margin is the lead of the likeliest token's logit over the second's."""

    case: str
    where: str
    index: int
    expected: int | None
    expected_margin: float | None
    found: int | None
    found_margin: float | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def first_difference(
    case: str, where: str, expected: Answered, found: Answered
) -> Difference | None:
    """Where two answers part, or None when they are one."""
    if expected.ids == found.ids:
        return None
    index = next(
        (i for i, (a, b) in enumerate(zip(expected.ids, found.ids, strict=False)) if a != b),
        min(len(expected.ids), len(found.ids)),
    )
    return Difference(case, where, index, *expected.at(index), *found.at(index))


def make_cases(
    held_out: HeldOut, prompts: int, tokens: int, samplings: Sequence[str]
) -> list[Case]:
    """Questions and running text in turns, each with every sampling (greedy, seeded)."""
    cases = []
    for index in range(prompts):
        name, subject = _subject(held_out, index)
        for sampling in samplings:
            settings = {} if sampling == "greedy" else {**SEEDED, "seed": 1000 + index}
            request = {**subject, **settings, "max_tokens": tokens}
            cases.append(Case(f"{name}, {sampling}", request))
    return cases


def make_long_cases(held_out: HeldOut, tokens: int, samplings: Sequence[str]) -> list[Case]:
    """Short prompts with long answers, as many as it takes to run out of a small memory."""
    cases = []
    for index in range(LONG_CASES):
        sampling = samplings[index % len(samplings)]
        settings = {} if sampling == "greedy" else {**SEEDED, "seed": index}
        request = {
            "prompt_ids": held_out.text(index, 24), **settings,
            "max_tokens": tokens, "min_tokens": tokens,
        }  # fmt: skip
        cases.append(Case(f"long text {index + 1}, {sampling}", request))
    return cases


def variants(full: bool) -> list[Variant]:
    """Ways to decode; the first is what the others are compared with, done again."""
    every: tuple[Rows, ...] = (*range(1, MOST_ROWS + 1), "auto")
    in_lanes: tuple[Rows, ...] = (*every, "mixed")
    if full:
        return [
            Variant(rows, lanes, cache)
            for lanes, group in ((1, every), (SEVERAL_LANES, in_lanes))
            for cache in ("cold", "warm")
            for rows in group
        ]
    several: tuple[tuple[Rows, Cache], ...] = (
        (1, "cold"), (2, "cold"), (5, "cold"), (8, "cold"), ("auto", "cold"), ("mixed", "cold"),
        ("auto", "warm"), ("mixed", "warm"),
    )  # fmt: skip
    warm: tuple[Rows, ...] = (1, 4, "auto")
    return [
        *(Variant(rows, 1, "cold") for rows in every),
        *(Variant(rows, 1, "warm") for rows in warm),
        *(Variant(rows, SEVERAL_LANES, cache) for rows, cache in several),
    ]


def share_out(cases: Sequence[int], ways: Sequence[Variant], full: bool) -> list[list[int]]:
    """Which cases each variant runs: all of them, or so many in turns that alone and in lanes
    every case is run again at least once."""
    if full:
        return [list(cases) for _ in ways]
    shares = []
    for lanes in (1, SEVERAL_LANES):
        group = [way for way in ways if way.lanes == lanes]
        each = min(len(cases), max(2 if lanes == 1 else lanes, math.ceil(len(cases) / len(group))))
        for turn in range(len(group)):
            shares.append([cases[(turn * each + i) % len(cases)] for i in range(each)])
    return shares


def _subject(held_out: HeldOut, index: int) -> tuple[str, dict[str, Any]]:
    """Every other prompt is running text, long enough for a prefix of it to be reused."""
    number = index // 2
    if index % 2 == 0:
        content = held_out.question(number)
        return f"question {number + 1}", {"messages": [{"role": "user", "content": content}]}
    return f"text {number + 1}", {"prompt_ids": held_out.text(number, 70 + 29 * number % 120)}
