"""Random requests, departures, lost nodes and scarce memory: every answer is the lonely one's."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from k3d.engine.engine import Engine, Limits
from k3d.engine.request import ErrorEvent, FinishEvent, Request, Sampling, TokenEvent
from k3d.errors import NodeLost
from k3d.model.row_pages import RowPages
from tests.engine.counting_model import VOCAB, Clock, CountingModel, NoExperts
from tests.engine.guessing_drafter import GuessingDrafter

SHARED = tuple(range(200, 200 + 150))


def draw_request(noise: random.Random, number: int) -> Request:
    shared = SHARED[: noise.choice((0, 0, 40, 64, 130, 150))]
    own = tuple(noise.randrange(VOCAB) for _ in range(noise.randrange(1, 60)))
    sampling = noise.choice(
        (
            Sampling(),
            Sampling(temperature=1.0, seed=number),
            Sampling(temperature=0.7, top_p=0.9, top_k=20, seed=number, presence_penalty=0.5),
            Sampling(repetition_penalty=1.5, logit_bias=((7, 3.5),)),
        )
    )
    stops = frozenset(noise.sample(range(VOCAB), noise.choice((0, 0, 3))))
    return Request(
        str(number), (*shared, *own), noise.randrange(1, 90), sampling, stops,
        draft_rows=noise.choice((None, None, 1, 2, 5, 8)),
    )  # fmt: skip


def alone(request: Request) -> list[int]:
    """The answer of an engine that has nothing else to do and no drafter."""
    engine = Engine(
        CountingModel(max_rows=64).as_model(), NoExperts(), 64, Limits(snapshot_bytes=0)
    )
    engine.submit(replace(request, draft_rows=1))
    tokens = []
    while not engine.idle:
        tokens += [e.token for e in engine.step() if isinstance(e, TokenEvent)]
    return tokens


class Crowd:
    """An engine under random load; checks every answer when it ends."""

    def __init__(self, seed: int, *, pages: int) -> None:
        self.noise = random.Random(seed)
        self.model = CountingModel(max_rows=40)
        self.clock = Clock()
        guesses = random.Random(seed)
        drafter = GuessingDrafter(
            lambda token, at: token + guesses.choice((1, 1, 2)), 0.8, seed, VOCAB
        )
        each = RowPages.bytes_each(self.model.config, self.model.dtype, drafter.row_width)
        limits = Limits(
            lanes=6, queue=1000, row_bytes=pages * each, snapshot_bytes=2**20, shared_chunk=9
        )
        self.engine = Engine(
            self.model.as_model(), NoExperts(), 33, limits, drafter=drafter, clock=self.clock
        )
        self.asked: dict[str, Request] = {}
        self.written: dict[str, list[int]] = {}
        self.cancelled = self.finished = 0

    def run(self, requests: int) -> None:
        number = 0
        while number < requests or not self.engine.idle:
            if number < requests and self.noise.random() < 0.2:
                request = draw_request(self.noise, number)
                self.asked[request.id], self.written[request.id] = request, []
                self.engine.submit(request)
                number += 1
            if self.asked and self.noise.random() < 0.02:
                self.read(self.engine.cancel(self.noise.choice(list(self.asked))))
            if self.noise.random() < 0.03:
                self.model.fail_next = [NodeLost("spark-1", "spark-1 stopped answering")]
            self.read(self.engine.step())

    def read(self, events: list) -> None:
        for event in events:
            assert not isinstance(event, ErrorEvent)
            if isinstance(event, TokenEvent):
                request = self.asked[event.request_id]
                written = self.written[request.id]
                assert event.position == len(request.prompt) + len(written)
                written.append(event.token)
            elif isinstance(event, FinishEvent):
                self.end(event)

    def end(self, event: FinishEvent) -> None:
        request = self.asked.pop(event.request_id)
        written = self.written.pop(request.id)
        assert event.timing.completion_tokens == len(written)
        wanted = alone(request)
        if event.reason == "cancelled":
            self.cancelled += 1
            assert written == wanted[: len(written)]
            return
        self.finished += 1
        assert written == wanted
        stopped = len(wanted) < request.max_tokens
        assert event.reason == ("stop" if stopped else "length")


MOST_REQUESTS = 1200
"""Nine pages are short now and then: a crowd goes on until they were."""


@pytest.mark.parametrize("pages", [5, 9, 200])
def test_a_crowd_is_answered_one_by_one(pages: int, seed: int) -> None:
    crowd = Crowd(seed, pages=pages)
    asked, counts = 0, crowd.engine.counts()
    while asked == 0 or (pages <= 9 and not counts.preempted and asked < MOST_REQUESTS):
        crowd.run(60)
        asked, counts = asked + 60, crowd.engine.counts()
    assert crowd.finished + crowd.cancelled == asked
    assert counts.cache is not None
    assert counts.free_pages + counts.cache.pages == counts.pages
    assert (counts.running, counts.waiting, counts.failed) == (0, 0, 0)
    assert pages > 9 or counts.preempted > 0


@pytest.mark.campaign
@pytest.mark.parametrize("turn", range(20))
def test_many_crowds(turn: int, seed: int) -> None:
    Crowd(seed + turn, pages=5 + turn).run(400)
