"""Decoding: requests in, events out, one pass a step.

Requests take turns: a turn is one prompt chunk or one token, so a long prompt delays others by a
chunk at most. A pass is committed only when it is complete; when a node is lost in the middle,
nothing happened, and the same pass runs again once the node is back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import torch

from k3d.engine.request import (
    ErrorEvent,
    Event,
    FinishEvent,
    FinishReason,
    Request,
    Timing,
    TokenEvent,
)
from k3d.engine.sampling import choose
from k3d.errors import ConfigError, K3Error, NodeLost, Refused
from k3d.model.kimi_k3 import KimiK3, RoutedExperts
from k3d.model.lane_state import LaneState


@dataclass
class _Sequence:
    request: Request
    submitted: float
    tokens: list[int]
    lane: LaneState | None = None
    started: float | None = None
    first_token: float | None = None

    def timing(self, now: float) -> Timing:
        started = self.started if self.started is not None else now
        first = self.first_token if self.first_token is not None else now
        return Timing(
            queue_s=started - self.submitted,
            prompt_s=first - started,
            decode_s=now - first,
            prompt_tokens=len(self.request.prompt),
            completion_tokens=len(self.tokens) - len(self.request.prompt),
        )


@dataclass(frozen=True)
class EngineCounts:
    """Totals since start; seconds are of passes, not of waiting."""

    running: int
    waiting: int
    finished: int
    failed: int
    prompt_tokens: int
    prompt_s: float
    decode_tokens: int
    decode_s: float
    passes: int


@dataclass
class _Totals:
    finished: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    prompt_s: float = 0.0
    decode_tokens: int = 0
    decode_s: float = 0.0
    passes: int = 0


@dataclass
class Limits:
    """lanes: requests in flight at once; queue: requests that may wait; recover_s: how long a
    pass waits for a lost node before its requests fail."""

    lanes: int = 8
    queue: int = 64
    recover_s: float = 10.0
    max_positions: int = 4096


@dataclass
class Engine:
    """One model on one pod. Not thread-safe: one thread submits, cancels and steps."""

    model: KimiK3
    experts: RoutedExperts
    chunk: int
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        if not 1 <= self.chunk <= self.model.max_rows:
            raise ConfigError(f"chunk {self.chunk} is not between 1 and {self.model.max_rows}")
        self._waiting: deque[_Sequence] = deque()
        self._running: deque[_Sequence] = deque()
        self._totals = _Totals()
        self._lost: NodeLost | None = None
        self._lost_at = 0.0

    @property
    def idle(self) -> bool:
        return not self._running and not self._waiting

    @property
    def lost(self) -> NodeLost | None:
        """The node that the pass in hand waits for."""
        return self._lost

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ConfigError for one that cannot run, Refused when full."""
        config = self.model.config
        request.sampling.check()
        if not request.prompt:
            raise ConfigError("the prompt holds no token")
        bad = next((t for t in request.prompt if not 0 <= t < config.vocab_size), None)
        if bad is not None:
            raise ConfigError(f"token id {bad} is not in a vocabulary of {config.vocab_size}")
        if request.max_tokens < 1:
            raise ConfigError(f"max_tokens {request.max_tokens} is below 1")
        most = min(self.limits.max_positions, config.max_positions or self.limits.max_positions)
        if len(request.prompt) + request.max_tokens > most:
            raise ConfigError(
                f"a prompt of {len(request.prompt)} tokens and {request.max_tokens} to come exceed "
                f"the context of {most}",
                hint="shorten the prompt or ask for fewer tokens",
            )
        if len(self._waiting) >= self.limits.queue:
            raise Refused(f"{len(self._waiting)} requests are waiting", hint="try again later")
        self._waiting.append(_Sequence(request, self.clock(), list(request.prompt)))

    def cancel(self, request_id: str) -> list[Event]:
        """End a request between passes; unknown ids are already gone."""
        for queue in (self._running, self._waiting):
            for sequence in queue:
                if sequence.request.id == request_id:
                    queue.remove(sequence)
                    if self.idle:
                        self._lost = None  # nobody waits for the node any more
                    return [self._finish(sequence, "cancelled")]
        return []

    def step(self) -> list[Event]:
        """One pass for the request whose turn it is; [] when idle or waiting for a node."""
        while self._waiting and len(self._running) < self.limits.lanes:
            self._running.append(self._waiting.popleft())
        if not self._running:
            return []
        sequence = self._running.popleft()
        begun = self.clock()
        try:
            events, done = self._turn(sequence)
        except NodeLost as lost:
            self.experts.abandon()
            return self._wait_for(lost, sequence, begun)
        except K3Error as error:
            self.experts.abandon()
            self._lost = None
            return [self._fail(sequence, error)]
        self._lost = None
        if not done:
            self._running.append(sequence)
        return events

    def fail_all(self, error: K3Error) -> list[Event]:
        """End every request with `error`."""
        self._lost = None
        sequences = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        return [self._fail(sequence, error) for sequence in sequences]

    def counts(self) -> EngineCounts:
        return EngineCounts(
            running=len(self._running), waiting=len(self._waiting), **self._totals.__dict__
        )

    def _turn(self, sequence: _Sequence) -> tuple[list[Event], bool]:
        request = sequence.request
        if sequence.lane is None:
            capacity = len(request.prompt) + request.max_tokens
            sequence.lane = LaneState(self.model.config, self.model.dtype, capacity)
            sequence.started = self.clock()
        lane = sequence.lane
        begun = self.clock()
        rows = sequence.tokens[lane.position : lane.position + self.chunk]
        with torch.inference_mode():
            logits = self.model.forward(
                torch.tensor(rows), lane, self.experts, slice(len(rows) - 1, None)
            )
            if not torch.isfinite(logits).all():
                raise K3Error(
                    f"the pass at position {lane.position} gave logits that are not numbers",
                    hint="verify the checkpoint and the banks",
                )
        lane.commit(len(rows))
        self._count_pass(sequence, len(rows), self.clock() - begun)
        if lane.position < len(sequence.tokens):
            return [], False  # more prompt to come
        token = choose(logits[0], request.sampling, lane.position)
        now = self.clock()
        if sequence.first_token is None:
            sequence.first_token = now
        if token in request.stop_ids:
            return [self._finish(sequence, "stop")], True
        sequence.tokens.append(token)
        events: list[Event] = [TokenEvent(request.id, token, lane.position)]
        if len(sequence.tokens) == len(request.prompt) + request.max_tokens:
            return [*events, self._finish(sequence, "length")], True
        return events, False

    def _count_pass(self, sequence: _Sequence, rows: int, seconds: float) -> None:
        totals = self._totals
        totals.passes += 1
        if sequence.first_token is None:
            totals.prompt_tokens += rows
            totals.prompt_s += seconds
        else:
            totals.decode_tokens += rows
            totals.decode_s += seconds

    def _wait_for(self, lost: NodeLost, sequence: _Sequence, begun: float) -> list[Event]:
        """Keep the request's turn until the node is back or the time since its pass began is up."""
        self._running.appendleft(sequence)
        now = self.clock()
        if self._lost is None:
            self._lost_at = begun
        self._lost = lost
        if now - self._lost_at < self.limits.recover_s:
            return []
        return self.fail_all(lost)

    def _finish(self, sequence: _Sequence, reason: FinishReason) -> FinishEvent:
        self._totals.finished += 1
        return FinishEvent(sequence.request.id, reason, sequence.timing(self.clock()))

    def _fail(self, sequence: _Sequence, error: K3Error) -> ErrorEvent:
        self._totals.failed += 1
        return ErrorEvent(sequence.request.id, error, sequence.timing(self.clock()))
