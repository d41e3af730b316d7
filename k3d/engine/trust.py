"""How far a sequence trusts its drafter's confidence, and when it stops asking.

A drafter's confidence is calibrated on other text. Biases on its logit, one for the first draft of
a block and one for the rest, follow what verifications say (stochastic gradient of the log loss):
slowly for all sequences together, which is where a new one starts, and faster for each. When
rounds keep verifying nothing, the drafter is not asked for a while, twice as long each time, and
then tried again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

OWN_RATE = 0.3
COMMON_RATE = 0.02
MOST_BIAS = 6.0
LEAST_CHANCE = 0.03  # no confidence is beyond being unlearned
DOUBT = 0.92
"""What is chosen for its estimate is, on average, overestimated."""
IDLE_ROUNDS = 3
FIRST_REST = 8
MOST_REST = 64


@dataclass
class Bias:
    """Of the first draft of a block, and of those behind it."""

    rate: float
    _values: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def of(self, k: int) -> float:
        return self._values[min(k, 1)]

    def move(self, k: int, error: float) -> None:
        at = min(k, 1)
        moved = self._values[at] + self.rate * error
        self._values[at] = max(-MOST_BIAS, min(MOST_BIAS, moved))


def common_bias() -> Bias:
    """What all sequences of an engine share."""
    return Bias(COMMON_RATE)


@dataclass
class Trust:
    """State of one sequence; `common` is shared with the others."""

    common: Bias = field(default_factory=common_bias)
    _own: Bias = field(default_factory=lambda: Bias(OWN_RATE))
    _idle: int = 0
    _resting: int = 0
    _rest: int = FIRST_REST

    @property
    def asks(self) -> bool:
        """Whether the drafter is worth asking this round."""
        return self._resting == 0

    def rest_a_round(self) -> None:
        """A round went by without drafts."""
        self._resting = max(0, self._resting - 1)

    def corrected(self, confidence: Sequence[float]) -> list[float]:
        """Conditional acceptance of each draft, experience counted in."""
        return [
            _sigmoid(_logit(each) + self.common.of(k) + self._own.of(k))
            for k, each in enumerate(confidence)
        ]

    def doubted(self, confidence: Sequence[float]) -> list[float]:
        """`corrected`, as drafts are chosen by it."""
        return [
            each * DOUBT if k == 0 else each for k, each in enumerate(self.corrected(confidence))
        ]

    def learn(self, confidence: Sequence[float], verified: int, accepted: int) -> None:
        """`accepted` of `verified` drafts were right; those after a wrong one say nothing."""
        if not verified:
            self._idle += 1
            if self._idle >= IDLE_ROUNDS:
                self._resting, self._rest = self._rest, min(MOST_REST, 2 * self._rest)
                self._idle = IDLE_ROUNDS - 1
            return
        self._idle = 0
        if accepted:
            self._rest = FIRST_REST
        corrected = self.corrected(confidence[: min(verified, accepted + 1)])
        for k, expected in enumerate(corrected):
            error = (1.0 if k < accepted else 0.0) - expected
            self.common.move(k, error)
            self._own.move(k, error)


def _logit(p: float) -> float:
    p = min(max(p, LEAST_CHANCE), 1.0 - LEAST_CHANCE)
    return math.log(p / (1.0 - p))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
