"""What logits go through before a token is chosen, and what is reported of them."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from k3d.engine.engine import Engine, Limits
from k3d.engine.request import (
    FinishEvent,
    PromptEvent,
    Request,
    Sampling,
    TokenEvent,
)
from k3d.engine.sampling import Rules, choose, logprobs_of
from k3d.errors import ConfigError
from tests.engine.counting_model import VOCAB, CountingModel, NoExperts
from tests.engine.guessing_drafter import GuessingDrafter


class Even:
    """Even tokens only, and no multiple of 16 but 16 itself, which ends it."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def allowed(self) -> torch.Tensor:
        ids = torch.arange(VOCAB)
        return (ids % 2 == 0) & ((ids % 16 != 0) | (ids == 16))

    def advance(self, token: int) -> bool:
        if not bool(self.allowed()[token]):
            return False
        self.taken.append(token)
        return True

    def take_back(self, count: int) -> None:
        del self.taken[len(self.taken) - count :]


def written(request: Request, *, drafter: GuessingDrafter | None = None) -> list[int]:
    engine = Engine(
        CountingModel(max_rows=64).as_model(), NoExperts(), 8, Limits(), drafter=drafter
    )
    engine.submit(request)
    tokens = []
    while not engine.idle:
        tokens += [e.token for e in engine.step() if isinstance(e, TokenEvent)]
    return tokens


def guesses() -> GuessingDrafter:
    return GuessingDrafter(lambda token, at: token + 1, 0.8, 1, VOCAB)


CASES = {
    "bias": Sampling(logit_bias=((14, -100.0), (200, 2.5))),
    "frequency": Sampling(frequency_penalty=2.0, logit_bias=((50, 4.5),)),
    "presence": Sampling(presence_penalty=2.0, logit_bias=((50, 4.5),)),
    "repetition": Sampling(repetition_penalty=2.0, logit_bias=((50, 4.5), (11, 3.0))),
    "seeded": Sampling(temperature=1.0, seed=3, frequency_penalty=1.0, min_p=0.05),
}


@pytest.mark.parametrize("name", CASES)
def test_every_rule_follows_the_tokens_whatever_is_drafted(name: str) -> None:
    plain = written(Request("a", (10, 11, 12), 40, CASES[name]))
    assert len(plain) == 40
    for rows in (2, 4, 8, None):
        request = Request("a", (10, 11, 12), 40, CASES[name], draft_rows=rows)
        assert written(request, drafter=guesses()) == plain


def test_bias() -> None:
    sampling = Sampling(logit_bias=((14, -100.0),))
    assert written(Request("a", (10, 11, 12), 3, sampling)) == [13, 15, 16]
    assert written(Request("a", (10, 11, 12), 2, Sampling(logit_bias=((7, 5.0),)))) == [7, 7]


def test_penalties() -> None:
    often = Sampling(logit_bias=((50, 4.5),), frequency_penalty=1.0)
    assert written(Request("a", (10,), 5, often)) == [50, 50, 51, 52, 53]
    once = Sampling(logit_bias=((50, 4.5),), presence_penalty=2.0)
    assert written(Request("a", (10,), 5, once)) == [50, 51, 52, 53, 54]
    asked_too = Sampling(logit_bias=((50, 4.5),), repetition_penalty=2.0)
    logits = torch.full((VOCAB,), 4.0, dtype=torch.float64)
    logits[3] = -4.0
    out = Rules(Request("a", (3, 50), 5, asked_too), VOCAB).apply(logits)
    assert (out[3], out[50], out[4]) == (-8.0, 2.0 + 4.5, 4.0)
    assert logits[3] == -4.0


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_stops_are_impossible_before_the_least_number_of_tokens(rows: int) -> None:
    request = Request(
        "a", (10, 11, 12), 9, stop_ids=frozenset({14, 18}), min_tokens=4, draft_rows=rows
    )
    assert written(request, drafter=guesses()) == [13, 15, 16, 17]


@pytest.mark.parametrize("rows", [1, 2, 8, None])
def test_a_constraint_is_kept_and_drafts_leave_it_as_it_was(rows: int | None) -> None:
    constraint = Even()
    request = Request(
        "a", (9,), 20, stop_ids=frozenset({16}), constraint=constraint, draft_rows=rows
    )
    tokens = written(request, drafter=guesses())
    assert tokens == constraint.taken == [10, 12, 14]


def test_log_probabilities_are_the_model_s() -> None:
    engine = Engine(CountingModel(max_rows=64).as_model(), NoExperts(), 8, Limits())
    cold = Sampling(temperature=0.2, logit_bias=((20, 50.0),))
    engine.submit(Request("a", (10, 11), 2, cold, logprobs=3))
    events = []
    while not engine.idle:
        events += engine.step()
    first, second = [e for e in events if isinstance(e, TokenEvent)]
    assert first.logprob is not None
    assert (first.token, first.logprob.token) == (20, 20)
    total = math.log(math.exp(3.0) + math.exp(2.0) + VOCAB - 2)
    assert first.logprob.logprob == pytest.approx(-total)
    ids, values = zip(*first.logprob.top, strict=True)
    assert ids == (12, 13, 0)
    assert values == pytest.approx((3.0 - total, 2.0 - total, -total))
    assert second.logprob is not None
    assert [token for token, _ in second.logprob.top] == [21, 22, 0]
    assert logprobs_of(torch.zeros(4, dtype=torch.float64), 2, 0).top == ()


@pytest.mark.parametrize("chunk", [1, 3, 8])
@pytest.mark.parametrize("tokens", [0, 2])
def test_a_prompt_is_reported_whole_and_once(chunk: int, tokens: int) -> None:
    engine = Engine(CountingModel(max_rows=8).as_model(), NoExperts(), chunk, Limits())
    prompt = tuple(range(10, 30))
    for _ in range(2):  # the second time from no prefix that is kept
        engine.submit(Request("a", prompt, tokens, logprobs=1, prompt_logprobs=True))
        events = []
        while not engine.idle:
            events += engine.step()
        pieces = [e for e in events if isinstance(e, PromptEvent)]
        assert pieces[0].start == 1
        found = [each for piece in pieces for each in piece.logprobs]
        assert [each.token for each in found] == list(prompt[1:])
        assert all(each.top[0][0] == each.token for each in found)
        assert sum(isinstance(e, TokenEvent) for e in events) == tokens
        assert isinstance(events[-1], FinishEvent)
        assert events[-1].timing.completion_tokens == tokens


def test_min_p() -> None:
    logits = torch.tensor([2.0, 1.9, 0.0, -5.0], dtype=torch.float64)
    sampling = Sampling(temperature=1.0, min_p=0.2)
    drawn = Counter(choose(logits, sampling, position) for position in range(300))
    assert set(drawn) == {0, 1}


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request("x", (1,), 4, Sampling(min_p=1.5)), "min_p 1.5"),
        (Request("x", (1,), 4, Sampling(presence_penalty=2.5)), "presence_penalty 2.5"),
        (Request("x", (1,), 4, Sampling(frequency_penalty=float("nan"))), "frequency_penalty"),
        (Request("x", (1,), 4, Sampling(repetition_penalty=0.0)), "repetition_penalty 0.0"),
        (Request("x", (1,), 4, Sampling(logit_bias=((1, 101.0),))), "logit_bias 101.0 of token 1"),
        (Request("x", (1,), 4, Sampling(logit_bias=((999, 1.0),))), "token id 999"),
        (Request("x", (1,), 4, stop_ids=frozenset({-4})), "token id -4"),
        (Request("x", (1,), 4, min_tokens=5), "min_tokens 5 is above"),
        (Request("x", (1,), 4, draft_rows=0), "draft_rows 0"),
        (Request("x", (1,), -1, prompt_logprobs=True), "max_tokens -1 is below 0"),
    ],
)
def test_what_is_asked_is_checked(request_: Request, says: str) -> None:
    engine = Engine(CountingModel().as_model(), NoExperts(), 8, Limits())
    with pytest.raises(ConfigError, match=says):
        engine.submit(request_)
