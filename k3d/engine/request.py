"""What goes into the engine and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from k3d.errors import ConfigError, K3Error

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0 and top_p 1 keep every token. Draws depend on the seed and
    the position of the token alone."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def check(self) -> None:
        """Raises ConfigError naming the value that cannot be used."""
        if not 0.0 <= self.temperature <= 100.0:
            raise ConfigError(f"temperature {self.temperature} is not between 0 and 100")
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p {self.top_p} is not in (0, 1]")
        if self.top_k < 0:
            raise ConfigError(f"top_k {self.top_k} is negative")
        if not -(2**63) <= self.seed < 2**63:
            raise ConfigError(f"seed {self.seed} does not fit 64 bits")


@dataclass(frozen=True)
class Request:
    """A prompt of token ids to continue by at most `max_tokens`."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class TokenEvent:
    """One token of a request, at `position` in the sequence."""

    request_id: str
    token: int
    position: int


@dataclass(frozen=True)
class Timing:
    """Seconds a request waited, read its prompt and decoded."""

    queue_s: float
    prompt_s: float
    decode_s: float
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class FinishEvent:
    """The end of a request; the stop token itself is not an event."""

    request_id: str
    reason: FinishReason
    timing: Timing


@dataclass(frozen=True)
class ErrorEvent:
    """A request that ended with an error; tokens sent before it are right."""

    request_id: str
    error: K3Error
    timing: Timing


Event = TokenEvent | FinishEvent | ErrorEvent
