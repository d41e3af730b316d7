"""What goes into the engine and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from k3d.errors import ConfigError, K3Error

FinishReason = Literal["stop", "length", "cancelled"]

MOST_LOGPROBS = 20


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 keep every token. Draws depend on the
    seed and the position of the token alone.

    Penalties and biases act on logits before the temperature: presence and frequency on the
    tokens written so far, repetition (1 is none) on the prompt's too; logit_bias adds.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()

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
        if not 0.0 <= self.min_p <= 1.0:
            raise ConfigError(f"min_p {self.min_p} is not between 0 and 1")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -2.0 <= getattr(self, name) <= 2.0:
                raise ConfigError(f"{name} {getattr(self, name)} is not between -2 and 2")
        if not 0.0 < self.repetition_penalty <= 10.0:
            raise ConfigError(f"repetition_penalty {self.repetition_penalty} is not in (0, 10]")
        bad = next((each for each in self.logit_bias if not -100.0 <= each[1] <= 100.0), None)
        if bad is not None:
            raise ConfigError(f"logit_bias {bad[1]} of token {bad[0]} is not between -100 and 100")


class Constraint(Protocol):
    """What a request may write next, token by token (a grammar). It may be asked about drafts:
    it is advanced along them and taken back."""

    def allowed(self) -> Tensor:
        """bool [vocab]: the tokens that may come next; never empty."""
        ...

    def advance(self, token: int) -> bool:
        """Take a token; False, and nothing changes, where it is not allowed."""
        ...

    def take_back(self, count: int) -> None:
        """Forget the last `count` tokens taken."""
        ...


@dataclass(frozen=True)
class Request:
    """A prompt of token ids to continue by at most `max_tokens`.

    stop_ids end the answer once min_tokens are written and are impossible before. `logprobs`
    asks for that many alternatives with every token (0: the token's own only). With
    `prompt_logprobs` the prompt's tokens are reported too, and max_tokens may be 0. `draft_rows`
    fixes the rows of a verification (1 is plain decoding); None lets the engine choose.
    `cache_salt` keeps prefix reuse within those who share it. `source` names the route it came by,
    for whoever looks at the lanes.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: bool = False
    constraint: Constraint | None = None
    draft_rows: int | None = None
    cache_salt: str = ""
    source: str = ""


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log probability of a token under the model (before temperature and penalties), and
    the likeliest tokens there with theirs, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class TokenEvent:
    """One token of a request, at `position` in the sequence; `logprob` where it was asked for."""

    request_id: str
    token: int
    position: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True)
class PromptEvent:
    """Log probabilities of prompt tokens `start`, `start` + 1, ...; the first token of a prompt
    has none and is left out (so `start` >= 1). Comes in pieces, all before the first token."""

    request_id: str
    start: int
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True)
class Timing:
    """Seconds a request waited, read its prompt and decoded; what it counted meanwhile.

    cached_tokens of the prompt were reused. `rounds` are passes that decoded; in them `drafted`
    draft rows were verified and `accepted` of them kept: the mean acceptance length is
    (accepted + rounds) / rounds.
    """

    queue_s: float
    prompt_s: float
    decode_s: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class FinishEvent:
    """The end of a request; the stop token itself is not an event, but `stop_id` names it."""

    request_id: str
    reason: FinishReason
    timing: Timing
    stop_id: int | None = None


@dataclass(frozen=True)
class ErrorEvent:
    """A request that ended with an error; tokens sent before it are right."""

    request_id: str
    error: K3Error
    timing: Timing


Event = TokenEvent | PromptEvent | FinishEvent | ErrorEvent
