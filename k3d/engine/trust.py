"""How far a sequence trusts its drafter's confidence, and when it stops asking.

A drafter's confidence is calibrated on other text. Two biases on its logit, one for the first
draft of a block and one for the rest, follow what this sequence's verifications say (stochastic
gradient of the log loss). When rounds keep verifying nothing, the drafter is not asked for a
while, twice as long each time, and then tried again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

LEARNING_RATE = 0.3
MOST_BIAS = 6.0
LEAST_CHANCE = 0.03  # no confidence is beyond being unlearned
IDLE_ROUNDS = 3
FIRST_REST = 8
MOST_REST = 64


@dataclass
class Trust:
    """State of one sequence."""

    _bias: list[float] = field(default_factory=lambda: [0.0, 0.0])
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
        """Conditional acceptance of each draft, the sequence's own experience counted in."""
        return [_sigmoid(_logit(each) + self._bias[min(k, 1)]) for k, each in enumerate(confidence)]

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
            at = min(k, 1)
            moved = self._bias[at] + LEARNING_RATE * error
            self._bias[at] = max(-MOST_BIAS, min(MOST_BIAS, moved))


def _logit(p: float) -> float:
    p = min(max(p, LEAST_CHANCE), 1.0 - LEAST_CHANCE)
    return math.log(p / (1.0 - p))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
