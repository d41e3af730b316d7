"""What the API serves: the facts of one Station, and its engine behind two calls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.registry import Collector

from k3d.engine.counts import EngineCounts
from k3d.engine.request import Event, Request
from k3d.model.chat_format import ChatFormat


class EngineRunner(Protocol):
    """The part of a Scheduler that the API uses; safe from any thread."""

    def submit(self, request: Request, deliver: Callable[[Event], None]) -> Future[None]: ...

    def cancel(self, request_id: str) -> None: ...

    def counts(self) -> EngineCounts: ...

    @property
    def progress_age_s(self) -> float: ...

    @property
    def alive(self) -> bool: ...


@dataclass(frozen=True)
class Served:
    """One model on one Station.

    `room` is the context in tokens, `vocab_size` the width of the logits; `state` gives the pod's
    state and the reason for it; `metrics` are those of the pod around the engine.
    """

    model: str
    digest: str
    created: int
    """Unix time."""
    chat: ChatFormat
    room: int
    vocab_size: int
    lanes: int
    queue: int
    engine: EngineRunner
    state: Callable[[], tuple[str, str | None]]
    synthetic_acceptance: float | None = None
    metrics: Collector | None = None

    @property
    def token_ids(self) -> int:
        """How many ids are tokens: spelled by the tokenizer, and with a logit."""
        return min(self.vocab_size, self.chat.tokenizer.vocab_size)

    @property
    def fingerprint(self) -> str:
        """Names what tokens depend on, beside prompt and seed: the model."""
        return f"fp_{self.digest[:12]}"
