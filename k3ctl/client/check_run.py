"""Running a check: plain answers first, then every other way, until one differs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from k3ctl.client.check_cases import (
    SEVERAL_LANES,
    Answered,
    Case,
    Difference,
    Variant,
    first_difference,
    share_out,
)
from k3ctl.client.daemon import Daemon
from k3ctl.client.timed_answer import TimedAnswer, take_answers

Progress = Callable[..., None]
"""Takes words, and the part of the work that is done."""
PROGRESS_CASES = 8


@dataclass
class Compared:
    """One way of decoding, and how much of it was compared; `way` is None for a pod.

    `reused` are prompt tokens that the prefix cache gave, `accepted` drafts that were kept,
    `preempted` lanes that gave way; None where it was not counted. `other_logprobs` are tokens
    whose log probability was another.
    """

    name: str
    way: Variant | None = None
    answers: int = 0
    tokens: int = 0
    other_logprobs: int = 0
    reused: int | None = None
    accepted: int | None = None
    preempted: int | None = None
    skipped: str | None = None

    def count(self, expected: Answered, found: Answered) -> None:
        self.answers += 1
        self.tokens += len(found.ids)
        pairs = zip(expected.logprobs, found.logprobs, strict=False)
        self.other_logprobs += sum(a != b for a, b in pairs)


@dataclass
class Check:
    """What a check found; `difference` ends it."""

    cases: list[Case]
    long_cases: list[Case]
    expected: dict[str, Answered] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    difference: Difference | None = None
    salt: str = field(default_factory=lambda: f"check-{uuid.uuid4().hex[:8]}")

    def ask_plainly(self, station: Daemon, progress: Progress) -> None:
        """The answers that all others must equal: plain, one lane, nothing reused."""
        for cases in (self.cases, self.long_cases):
            for index, case in enumerate(cases):
                if index % PROGRESS_CASES == 0:
                    progress(f"plain, {index + 1} of {len(cases)}: {case.name}", index / len(cases))
                salt = f"{self.salt}-plain-{case.name}"
                (answer,) = take_answers(station, [case.body(1, salt)], 1)
                self.expected[case.name] = answered(answer)

    def run_variants(
        self, station: Daemon, ways: Sequence[Variant], full: bool, progress: Progress
    ) -> None:
        """Every way of decoding that the running Station offers, until an answer differs."""
        shares = share_out(range(len(self.cases)), ways, full)
        for number, (way, share) in enumerate(zip(ways, shares, strict=True)):
            progress(f"{number + 1} of {len(ways)}: {way.name}", number / len(ways))
            salt = f"{self.salt}-{number}"
            cases = [self.cases[index] for index in share]
            if way.cache == "warm":
                first = [{**case.body(None, salt), "max_tokens": 1} for case in cases]
                take_answers(station, first, SEVERAL_LANES)
            bodies = [
                case.body(way.rows_of(i), salt if way.cache == "warm" else f"{salt}-{i}")
                for i, case in enumerate(cases)
            ]
            found = take_answers(station, bodies, way.lanes, staggered=way.lanes > 1)
            compared = Compared(way.name, way, reused=0, accepted=0)
            self.compared.append(compared)
            for case, answer in zip(cases, found, strict=True):
                compared.reused = (compared.reused or 0) + int(answer.done["cached_tokens"])
                compared.accepted = (compared.accepted or 0) + int(answer.done["accepted"])
                if not self._same(case, answered(answer), compared):
                    return

    def read_pods(self, lines: Iterator[dict[str, Any]], few: int, progress: Progress) -> None:
        """Answers of pods of their own to the first `few` cases, or to the long ones."""
        compared, cases = Compared(""), self.cases
        for line in lines:
            kind, name = line.get("type"), str(line.get("name", ""))
            if kind == "pod":
                progress(f"a pod of its own: {name}")
                compared = Compared(name)
                cases = self.long_cases if line.get("long") else self.cases[:few]
            elif kind == "answer":
                case = cases[int(line["case"])]
                found = Answered(
                    tuple(line["ids"]), tuple(line["logprobs"]), tuple(line["margins"])
                )
                if not self._same(case, found, compared):
                    self.compared.append(compared)
                    return
            elif kind == "end":
                compared.preempted = int(line["preempted"])
                self.compared.append(compared)
            elif kind == "skipped":
                self.compared.append(Compared(name, skipped=str(line["reason"])))

    def _same(self, case: Case, found: Answered, compared: Compared) -> bool:
        expected = self.expected[case.name]
        compared.count(expected, found)
        self.difference = first_difference(case.name, compared.name, expected, found)
        return self.difference is None


def answered(answer: TimedAnswer) -> Answered:
    return Answered(answer.ids, answer.logprobs, answer.margins)
