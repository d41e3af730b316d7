"""One request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from k3d.engine.prefix_cache import CacheNode
from k3d.engine.request import Request, Timing
from k3d.engine.sampling import Rules
from k3d.engine.trust import Trust
from k3d.model.lane_state import LaneState


@dataclass(eq=False)
class Sequence:
    """`tokens` is the prompt and what was written; lane.position of them are computed. The last
    one is the anchor: it is known, and has not been run."""

    request: Request
    arrival: int
    submitted: float
    tokens: list[int]
    rules: Rules
    trust: Trust = field(default_factory=Trust)
    lane: LaneState | None = None
    node: CacheNode | None = None  # of the prefix cache, for the pages computed so far
    reported: int = 1  # prompt tokens whose log probabilities are out; the first has none
    started: float | None = None
    first_token: float | None = None
    cached_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    last_rows: int | None = None  # of its last round
    preempted: int = 0

    @property
    def position(self) -> int:
        return self.lane.position if self.lane is not None else 0

    @property
    def behind(self) -> int:
        """Tokens that are known and not computed; 1 when decoding."""
        return len(self.tokens) - self.position

    @property
    def written(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def room(self) -> int:
        """Tokens that may still be written."""
        return self.request.max_tokens - self.written

    def timing(self, now: float) -> Timing:
        started = self.started if self.started is not None else now
        first = self.first_token if self.first_token is not None else now
        return Timing(
            queue_s=started - self.submitted,
            prompt_s=first - started,
            decode_s=now - first,
            prompt_tokens=len(self.request.prompt),
            completion_tokens=self.written,
            cached_tokens=self.cached_tokens,
            rounds=self.rounds,
            drafted=self.drafted,
            accepted=self.accepted,
        )
