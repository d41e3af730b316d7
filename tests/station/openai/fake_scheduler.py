"""A scheduler without a model: answers come from a script, in blocks, as drafting brings them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from k3d.engine.cost_curve import CostLine
from k3d.engine.counts import EngineCounts, Totals
from k3d.engine.request import (
    ErrorEvent,
    Event,
    FinishEvent,
    FinishReason,
    PromptEvent,
    Request,
    Timing,
    TokenEvent,
    TokenLogprob,
)
from k3d.errors import K3Error, Refused

ALL = 0
"""A block that holds the whole answer."""

Script = Callable[[Request], Sequence[int]]


@dataclass
class _Live:
    request: Request
    deliver: Callable[[Event], None]
    answer: list[int]
    written: int = 0
    rounds: int = 0
    started: bool = False


@dataclass
class FakeScheduler:
    """Implements EngineRunner. Each pass delivers up to `block` tokens of every request.

    A request's answer is its script, then the end of the answer; with a constraint, a script's
    token that is not allowed gives way to one that ends the answer soon.
    """

    script: Script
    block: int = 1
    lanes: int = 4
    eos: int = 258
    fails_after: int | None = None
    error: K3Error = field(default_factory=lambda: K3Error("the engine broke"))
    refusal: K3Error | None = None

    def __post_init__(self) -> None:
        self.alive = True
        self.progress_age_s = 0.0
        self.submitted: list[Request] = []
        self.cancelled: list[str] = []
        self.passes = 0
        self._live: list[_Live] = []
        self._ready = threading.Condition()
        self._steps: int | None = None  # passes that may still run; None for any number
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request, deliver: Callable[[Event], None]) -> Future[None]:
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()
        with self._ready:
            if self.refusal is not None:
                done.set_exception(self.refusal)
                return done
            self.submitted.append(request)
            self._live.append(_Live(request, deliver, list(self.script(request))))
            done.set_result(None)
            self._ready.notify_all()
        return done

    def cancel(self, request_id: str) -> None:
        with self._ready:
            self.cancelled.append(request_id)
            for live in self._live:
                if live.request.id == request_id:
                    self._end(live, "cancelled")
                    break
            self._ready.notify_all()

    def counts(self) -> EngineCounts:
        with self._ready:
            running = min(self.lanes, len(self._live))
            totals: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in Totals(passes=self.passes).__dict__.items()
            }
            return EngineCounts(
                running=running,
                waiting=len(self._live) - running,
                draft_s=0.0,
                preempted=0,
                pages=8,
                free_pages=6,
                cache=None,
                cost=CostLine(0.0, 0.0, 0.0, measured=False),
                **totals,
            )

    @property
    def live(self) -> int:
        """Requests that are not over."""
        with self._ready:
            return len(self._live)

    def hold(self) -> None:
        """Run no pass until `step` or `go`."""
        with self._ready:
            self._steps = 0

    def step(self, passes: int = 1) -> None:
        """Allow some passes more."""
        with self._ready:
            assert self._steps is not None
            self._steps += passes
            self._ready.notify_all()

    def go(self) -> None:
        with self._ready:
            self._steps = None
            self._ready.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Until `condition`, which looks at this scheduler, holds."""
        with self._ready:
            assert self._ready.wait_for(condition, timeout_s), "it did not happen"

    def close(self) -> None:
        with self._ready:
            self._closing = True
            for live in list(self._live):
                self._fail(live, Refused("the Station is shutting down"))
            self._ready.notify_all()
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._closing or (self._live and self._steps != 0))
                if self._closing:
                    return
                if self._steps is not None:
                    self._steps -= 1
                self.passes += 1
                for live in self._live[: self.lanes]:
                    self._pass(live)
                self._ready.notify_all()

    def _pass(self, live: _Live) -> None:
        request = live.request
        live.rounds += 1
        if not live.started:
            live.started = True
            self._report_prompt(live)
        block = self.block or len(live.answer) + 1
        for _ in range(block):
            if self.fails_after is not None and live.written >= self.fails_after:
                self._fail(live, self.error)
                return
            if live.written >= request.max_tokens:
                self._end(live, "length")
                return
            token = self._next(live)
            if token in request.stop_ids and live.written >= request.min_tokens:
                self._end(live, "stop", token)
                return
            if request.constraint is not None:
                assert request.constraint.advance(token)
            position = len(request.prompt) + live.written
            live.written += 1
            logprob = None if request.logprobs is None else logprob_of(token, request.logprobs)
            live.deliver(TokenEvent(request.id, token, position, logprob))
            if live.written == request.max_tokens:
                self._end(live, "length")
                return

    def _next(self, live: _Live) -> int:
        at = live.written
        token = live.answer[at] if at < len(live.answer) else self.eos
        constraint = live.request.constraint
        if constraint is not None:
            allowed = constraint.allowed()
            if not allowed[token]:
                token = _shortest_way(allowed.nonzero().flatten().tolist(), self.eos)
        if token in live.request.stop_ids and at < live.request.min_tokens:
            token = ord("_")
        return token

    def _report_prompt(self, live: _Live) -> None:
        request = live.request
        if not request.prompt_logprobs:
            return
        scored = [logprob_of(token, request.logprobs or 0) for token in request.prompt[1:]]
        half = (len(scored) + 1) // 2
        for start, piece in ((1, scored[:half]), (1 + half, scored[half:])):
            if piece:
                live.deliver(PromptEvent(request.id, start, tuple(piece)))

    def _end(self, live: _Live, reason: FinishReason, stop_id: int | None = None) -> None:
        self._live.remove(live)
        live.deliver(FinishEvent(live.request.id, reason, self._timing(live), stop_id))

    def _fail(self, live: _Live, error: K3Error) -> None:
        self._live.remove(live)
        live.deliver(ErrorEvent(live.request.id, error, self._timing(live)))

    def _timing(self, live: _Live) -> Timing:
        prompt = len(live.request.prompt)
        drafted = live.rounds * max(0, self.block - 1)
        return Timing(
            0.0, 0.0, 0.0, prompt, live.written, prompt // 2, live.rounds, drafted, drafted // 2
        )


def _shortest_way(allowed: list[int], eos: int) -> int:
    """The token that most likely brings an answer to its end."""
    for wanted in (eos, 260, 261, 259, ord("}"), ord('"')):
        if wanted in allowed:
            return wanted
    return next((token for token in allowed if token > ord(" ")), allowed[0])


def logprob_of(token: int, top: int) -> TokenLogprob:
    """A made-up value that a test can tell."""
    value = -(token % 7 + 1) / 4
    return TokenLogprob(token, value, tuple((token ^ at, value - at) for at in range(top)))
