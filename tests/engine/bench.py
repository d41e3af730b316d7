"""An engine on a model that counts, its clock, and what its events say."""

from __future__ import annotations

from k3d.engine.engine import Engine, Limits
from k3d.engine.request import (
    ErrorEvent,
    Event,
    FinishEvent,
    Request,
    TokenEvent,
)
from tests.engine.counting_model import Clock, CountingModel, NoExperts


class Bench:
    def __init__(self, chunk: int = 4, vocabulary: int | None = None, **limits: float) -> None:
        self.model, self.experts, self.clock = CountingModel(), NoExperts(), Clock()
        self.engine = Engine(
            self.model.as_model(),
            self.experts,
            chunk,
            Limits(**limits),  # type: ignore[arg-type]
            clock=self.clock,
            vocabulary=vocabulary,
        )

    def submit(self, name: str, prompt: int = 3, tokens: int = 4, **more: object) -> None:
        first = {"a": 10, "b": 110, "c": 210}.get(name, 300)
        ids = tuple(range(first, first + prompt))
        self.engine.submit(Request(name, ids, tokens, **more))  # type: ignore[arg-type]

    def run(self, steps: int = 1000) -> list[Event]:
        events: list[Event] = []
        while not self.engine.idle and steps:
            events += self.engine.step()
            steps -= 1
        return events


def tokens(events: list[Event], name: str) -> list[int]:
    return [e.token for e in events if isinstance(e, TokenEvent) and e.request_id == name]


def end_of(events: list[Event], name: str) -> FinishEvent | ErrorEvent:
    ends = [e for e in events if isinstance(e, FinishEvent | ErrorEvent)]
    [end] = [e for e in ends if e.request_id == name]
    return end
