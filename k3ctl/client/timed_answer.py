"""Answers of the Station with the times their tokens came at, one after another or together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from k3ctl.client.daemon import Daemon

STAGGER_TOKENS = 2
"""Staggered requests start when the one before has written so many."""


@dataclass(frozen=True)
class TimedAnswer:
    """`margins` are the log probability of the likeliest token less that of the second, where two
    were asked for. Times are seconds of the asking process: `sent_s` on its clock, the others
    since then. `done` is the Station's last line."""

    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    margins: tuple[float | None, ...]
    sent_s: float
    first_s: float | None
    last_s: float
    done: Mapping[str, Any]

    @property
    def tokens_per_s(self) -> float | None:
        """After the first token, which belongs to the prompt; None below two tokens."""
        if self.first_s is None or len(self.ids) < 2 or self.last_s <= self.first_s:
            return None
        return (len(self.ids) - 1) / (self.last_s - self.first_s)

    @property
    def ended_s(self) -> float:
        """When its last token came, on the asking process's clock."""
        return self.sent_s + self.last_s


def take_answer(
    station: Daemon,
    request: Mapping[str, Any],
    on_token: Callable[[int], None] | None = None,
) -> TimedAnswer:
    """One answer; `on_token` gets the number of tokens so far. Raises what ended it early."""
    ids: list[int] = []
    logprobs: list[float | None] = []
    margins: list[float | None] = []
    first_s: float | None = None
    last_s = 0.0
    done: Mapping[str, Any] = {}
    sent = perf_counter()
    for event in station.chat(request):
        if event.get("type") == "done":
            done = event
        elif isinstance(event.get("id"), int):
            last_s = perf_counter() - sent
            first_s = last_s if first_s is None else first_s
            ids.append(event["id"])
            logprobs.append(event.get("logprob"))
            margins.append(margin_of(event.get("top")))
            if on_token is not None:
                on_token(len(ids))
    return TimedAnswer(
        tuple(ids), tuple(logprobs), tuple(margins), sent, first_s, last_s, done
    )  # fmt: skip


def margin_of(top: Sequence[Sequence[float]] | None) -> float | None:
    """How far the likeliest token leads, in logits."""
    return None if not top or len(top) < 2 else float(top[0][1]) - float(top[1][1])


def take_answers(
    station: Daemon,
    requests: Sequence[Mapping[str, Any]],
    lanes: int,
    *,
    staggered: bool = False,
) -> list[TimedAnswer]:
    """The answers of all requests, `lanes` of them at a time.

    Staggered, each starts behind the first tokens of the one before; else as soon as there is
    room. The first error ends all of them and is raised.
    """
    begun = [threading.Event() for _ in requests]
    ended = threading.Event()

    def one(index: int) -> TimedAnswer | None:
        if staggered and index:
            begun[index - 1].wait()

        def on_token(count: int) -> None:
            if count >= STAGGER_TOKENS:
                begun[index].set()
            if ended.is_set():
                raise _Ended

        try:
            return None if ended.is_set() else take_answer(station, requests[index], on_token)
        except _Ended:
            return None
        except BaseException:
            ended.set()
            raise
        finally:
            begun[index].set()

    with ThreadPoolExecutor(max_workers=max(1, lanes)) as pool:
        try:
            found = list(pool.map(one, range(len(requests))))
        except BaseException:
            ended.set()
            raise
    return [answer for answer in found if answer is not None]


class _Ended(Exception):
    """Another answer failed, or the person gave up."""
