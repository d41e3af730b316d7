"""The engine's lanes as frames show them, read from outside the engine's thread.

What is read was written a moment ago by another thread: a token may be counted in one number and
not yet in the next. Nobody waits for the engine, which may itself wait for a node.
"""

from __future__ import annotations

from k3d.engine.engine import Engine
from k3d.engine.sequence import Sequence
from k3d.errors import NotFound
from k3d.store.frame import LaneFrame, LanePhase

MOST_WAITING = 64
"""Waiting requests that a frame lists; `Frame.waiting` counts all."""


class LaneWatch:
    """Two looks give a rate; one thread looks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._written: dict[str, int] = {}
        self._rates: dict[str, float] = {}

    def look(self, interval_s: float) -> tuple[LaneFrame, ...]:
        """Every lane and those who wait, with rates since the look before."""
        running, waiting = self._engine.lanes.seen()
        written, rates = {}, {}
        for sequence in running:
            name, count = sequence.request.id, sequence.written
            written[name] = count
            if name in self._written and interval_s > 0:
                rates[name] = max(0, count - self._written[name]) / interval_s
        self._written, self._rates = written, rates
        return self._frames(running, waiting)

    def now(self) -> tuple[LaneFrame, ...]:
        """As they are now, with the rates of the last look. Any thread."""
        return self._frames(*self._engine.lanes.seen())

    def require(self, request_id: str) -> None:
        """Raises NotFound for a request that is neither in a lane nor waiting."""
        running, waiting = self._engine.lanes.seen()
        if not any(each.request.id == request_id for each in (*running, *waiting)):
            raise NotFound(
                f"no request {request_id} is running or waiting",
                hint="it may have ended; see those that run: k3ctl lanes",
            )

    def _frames(
        self, running: tuple[Sequence, ...], waiting: tuple[Sequence, ...]
    ) -> tuple[LaneFrame, ...]:
        lanes = [self._frame(each, _phase(each)) for each in running]
        return (*lanes, *(self._frame(each, "waiting") for each in waiting[:MOST_WAITING]))

    def _frame(self, sequence: Sequence, phase: LanePhase) -> LaneFrame:
        request = sequence.request
        rate = self._rates.get(request.id)
        rounds = sequence.rounds
        return LaneFrame(
            id=request.id,
            source=request.source,
            phase=phase,
            age_s=round(max(0.0, self._engine.clock() - sequence.submitted), 3),
            prompt_tokens=len(request.prompt),
            cached_tokens=sequence.cached_tokens,
            prefilled_tokens=min(sequence.position, len(request.prompt)),
            written_tokens=sequence.written,
            most_tokens=request.max_tokens,
            tokens_per_s=None if rate is None or phase != "decode" else round(rate, 2),
            rows=sequence.last_rows,
            acceptance_length=round((sequence.accepted + rounds) / rounds, 3) if rounds else None,
            preempted=sequence.preempted,
        )


def _phase(sequence: Sequence) -> LanePhase:
    return "decode" if sequence.written else "prompt"
