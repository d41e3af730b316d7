"""`k3ctl bench agentic`: conversations of many turns behind one long history.

Every user of a point has the same history; each turn adds text and asks for an answer, which goes
into the next turn as the model wrote it. Users take their turns without a pause.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from k3ctl.client.answer_figures import DEFINITIONS, figures_of, rounded
from k3ctl.client.bench_decode import labels_of, sides_of
from k3ctl.client.daemon import Daemon
from k3ctl.client.held_out import HeldOut
from k3ctl.client.timed_answer import TimedAnswer, take_answer
from k3d.errors import ConfigError


@dataclass(frozen=True)
class Workload:
    """Tokens of the shared history, added a turn and answered a turn."""

    history: int
    turn: int
    answer: int
    turns: int

    @property
    def longest(self) -> int:
        """Positions of the last turn, answer included."""
        return self.history + self.turns * (self.turn + self.answer)


def bench_agentic(
    station: Daemon,
    held_out: HeldOut,
    workload: Workload,
    *,
    users: Sequence[int],
    caches: Sequence[bool],
    progress: Callable[..., None],
) -> dict[str, Any]:
    """A point for every number of users, with the prefix cache on and off, plain and drafted."""
    engine = station.engine()
    if workload.longest > engine["context"]:
        raise ConfigError(
            f"{workload.turns} turns of {workload.turn} + {workload.answer} tokens behind "
            f"{workload.history} make {workload.longest}; the context is {engine['context']}",
            hint="take fewer turns or shorter ones",
        )
    if max(users) > engine["lanes"]:
        raise ConfigError(
            f"the pod computes {engine['lanes']} lanes at once, not {max(users)}",
            hint="ask for fewer users",
        )
    caches = [each for each in caches if not each or engine["reuses_prefixes"]]
    points: list[dict[str, Any]] = []
    steps = len(users) * len(caches) * len(sides_of(engine))
    for count in users:
        for reuse in caches:
            for side, rows in sides_of(engine).items():
                words = f"users: {count}, prefix cache {'on' if reuse else 'off'}, {side}"
                progress(words, len(points) / steps)
                answers = _run(station, held_out, workload, count, reuse, rows)
                figures = figures_of(answers)
                figures["tokens_per_s_with_prompts"] = rounded(
                    (figures["prompt_tokens"] + figures["output_tokens"]) / figures["wall_s"]
                )
                progress(
                    f"  {figures['tokens_per_s_user']} tokens/s a user, "
                    f"{figures['tokens_per_s_total']} of all"
                )
                points.append(
                    {"users": count, "cache": reuse, "decoding": side, **figures}
                )  # fmt: skip
    return {
        **labels_of(engine),
        "prompts_from": held_out.source,
        "workload": asdict(workload) | {"longest": workload.longest},
        "points": points,
        "frontier": frontier(points),
        "definitions": {
            **DEFINITIONS,
            "tokens_per_s_with_prompts": "prompt tokens, reused ones included, and written ones / "
            "the same time",
            "cache on": "turns of a point share one salt: the history is read once for all users",
            "cache off": "every turn has a salt of its own: nothing is reused",
            "frontier": "points that no other beats in both speeds",
        },
    }


def frontier(points: Sequence[dict[str, Any]]) -> list[int]:
    """Numbers of the points that no other beats in tokens a second of a user and of all."""

    def speeds(point: dict[str, Any]) -> tuple[float, float]:
        return point["tokens_per_s_user"] or 0.0, point["tokens_per_s_total"] or 0.0

    return [
        index
        for index, point in enumerate(points)
        if not any(
            other is not point
            and all(b >= a for a, b in zip(speeds(point), speeds(other), strict=True))
            and speeds(other) != speeds(point)
            for other in points
        )
    ]


def _run(
    station: Daemon,
    held_out: HeldOut,
    workload: Workload,
    users: int,
    reuse: bool,
    rows: int | None,
) -> list[TimedAnswer]:
    """All turns of all users, each user's one after the other."""
    salt = uuid.uuid4().hex[:8]
    history = held_out.text(0, workload.history)
    ended = threading.Event()

    def converse(user: int) -> list[TimedAnswer]:
        tokens, answers = list(history), []
        added = held_out.text(1 + user, workload.turn * workload.turns)
        for turn in range(workload.turns):
            if ended.is_set():
                break
            tokens += added[turn * workload.turn : (turn + 1) * workload.turn]
            body = {
                "prompt_ids": tokens, "max_tokens": workload.answer,
                "min_tokens": workload.answer, "draft_rows": rows,
                "cache_salt": salt if reuse else f"{salt}-{user}-{turn}",
            }  # fmt: skip
            try:
                answer = take_answer(station, body)
            except BaseException:
                ended.set()
                raise
            answers.append(answer)
            tokens += answer.ids
        return answers

    with ThreadPoolExecutor(max_workers=users) as pool:
        try:
            return [answer for found in pool.map(converse, range(users)) for answer in found]
        except BaseException:
            ended.set()
            raise
