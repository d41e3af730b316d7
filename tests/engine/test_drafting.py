"""Drafted answers are the plain ones, whatever the drafts are worth."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from k3d.engine.engine import Engine, Limits
from k3d.engine.offline import OfflineModel
from k3d.engine.request import ErrorEvent, FinishEvent, Request, Sampling, TokenEvent
from k3d.engine.synthetic import SyntheticAcceptance
from k3d.errors import ConfigError
from k3d.model.row_pages import RowPages
from tests.engine.counting_model import VOCAB, Clock, CountingModel, NoExperts
from tests.engine.guessing_drafter import GuessingDrafter
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]
Answers = dict[str, list[int]]
PROMPTS = {
    f"p{n}": tuple((31 * n + 7 * i * (n + 1)) % 300 for i in range(5 + 13 * n)) for n in range(6)
}
SEEDED = Sampling(temperature=1.0, top_p=0.95, seed=7)


@pytest.fixture(scope="module")
def model(tiny: Tiny) -> OfflineModel:
    return OfflineModel(tiny(TinyModel(seed=1)), "bf16", 64)


def answer(
    model: OfflineModel,
    requests: list[Request],
    *,
    drafter: GuessingDrafter | None = None,
    chunk: int = 16,
    late: bool = False,
    **limits: int,
) -> tuple[Answers, Engine]:
    """Every request's tokens; `late`: one request comes every third step."""
    engine = Engine(model.model, model.experts, chunk, Limits(**limits), drafter=drafter)  # type: ignore[arg-type]
    queue = list(requests)
    answers: Answers = {request.id: [] for request in requests}
    steps = 0
    while queue or not engine.idle:
        while queue and (not late or steps % 3 == 0):
            engine.submit(queue.pop(0))
            if late:
                break
        steps += 1
        for event in engine.step():
            assert not isinstance(event, ErrorEvent)
            if isinstance(event, TokenEvent):
                answers[event.request_id].append(event.token)
    assert engine.counts().free_pages + _cached(engine) == engine.counts().pages
    return answers, engine


def _cached(engine: Engine) -> int:
    cache = engine.counts().cache
    return cache.pages if cache is not None else 0


def requests(sampling: Sampling, rows: int | None, tokens: int = 24) -> list[Request]:
    return [Request(name, ids, tokens, sampling, draft_rows=rows) for name, ids in PROMPTS.items()]


@pytest.fixture(scope="module", params=["greedy", "seeded"])
def sampling(request: pytest.FixtureRequest) -> Sampling:
    return Sampling() if request.param == "greedy" else SEEDED


@pytest.fixture(scope="module")
def plain(model: OfflineModel, sampling: Sampling) -> Answers:
    """One request after the other, no drafts, nothing reused."""
    answers: Answers = {}
    for request in requests(sampling, None):
        answers |= answer(model, [request], snapshot_bytes=0, lanes=1)[0]
    return answers


def knowing(model: OfflineModel, plain: Answers, right: float, seed: int = 1) -> GuessingDrafter:
    """Drafts from what plain decoding wrote: the lane is told by the tokens behind its anchor."""
    follow: dict[tuple[int, int], int] = {}
    for name, ids in PROMPTS.items():
        text = [*ids, *plain[name]]
        follow |= {(text[i], i): text[i + 1] for i in range(len(text) - 1)}
    vocab = model.config.vocab_size
    return GuessingDrafter(lambda token, at: follow.get((token, at), 3), right, seed, vocab)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, None])
def test_drafts_change_no_token(
    model: OfflineModel, sampling: Sampling, plain: Answers, rows: int | None
) -> None:
    drafter = knowing(model, plain, 0.7)
    found, engine = answer(model, requests(sampling, rows), drafter=drafter)
    assert found == plain
    counts = engine.counts()
    assert (counts.accepted[0] > 0) == (rows != 1)
    assert counts.rounds < sum(map(len, plain.values())) or rows == 1


@pytest.mark.parametrize(("right", "chunk"), [(0.0, 7), (0.4, 64), (1.0, 1)])
def test_neither_do_their_quality_and_the_chunk(
    model: OfflineModel, sampling: Sampling, plain: Answers, right: float, chunk: int
) -> None:
    drafter = knowing(model, plain, right)
    found, _ = answer(model, requests(sampling, 8), drafter=drafter, chunk=chunk, late=True)
    assert found == plain


def test_nor_memory_that_is_too_small(model: OfflineModel, sampling: Sampling) -> None:
    """Three lanes that grow to three pages each where four fit: they give way and start over."""
    asked = [
        Request(f"{n}", tuple((n + 5 * i) % 300 for i in range(58)), 80, sampling) for n in range(3)
    ]
    wanted: Answers = {}
    for request in asked:
        wanted |= answer(model, [request], snapshot_bytes=0)[0]
    each = RowPages.bytes_each(model.config, model.model.dtype)
    for snapshot_bytes in (0, 2**22):
        found, engine = answer(model, asked, row_bytes=4 * each, snapshot_bytes=snapshot_bytes)
        assert found == wanted
        assert engine.counts().preempted > 0


def test_nor_prefixes_that_are_reused(
    model: OfflineModel, sampling: Sampling, plain: Answers
) -> None:
    """The same requests again, then each with its answer and a question behind it."""
    drafter = knowing(model, plain, 0.7)
    engine = Engine(model.model, model.experts, 16, Limits(), drafter=drafter)

    def ask(asked: list[Request]) -> tuple[Answers, int]:
        answers: Answers = {request.id: [] for request in asked}
        cached = 0
        for request in asked:
            engine.submit(request)
        while not engine.idle:
            for event in engine.step():
                if isinstance(event, TokenEvent):
                    answers[event.request_id].append(event.token)
                elif isinstance(event, FinishEvent):
                    cached += event.timing.cached_tokens
        return answers, cached

    first, cold = ask(requests(sampling, None))
    again, warm = ask(requests(sampling, None))
    assert first == again == plain
    assert cold == 0
    assert warm == sum((len(ids) - 1) // 64 * 64 for ids in PROMPTS.values())
    turns = [
        Request(f"{name} on", (*ids, *plain[name], 5, 6, 7), 12, sampling)
        for name, ids in PROMPTS.items()
    ]
    on, reused = ask(turns)
    fresh, _ = answer(model, turns, snapshot_bytes=0)
    assert on == fresh
    assert reused > warm  # what was written is reused, not only what was asked


@pytest.mark.parametrize("length", [64, 65, 128, 130, 192])
def test_an_equal_prompt_reuses_every_page_but_the_one_it_ends_in(
    model: OfflineModel, length: int
) -> None:
    engine = Engine(model.model, model.experts, 64, Limits())
    cached = []
    for name in "ab":
        engine.submit(Request(name, tuple(range(length)), 1))
        while not engine.idle:
            ends = [e for e in engine.step() if isinstance(e, FinishEvent)]
            cached += [end.timing.cached_tokens for end in ends]
    assert cached == [0, (length - 1) // 64 * 64]


def test_salts_keep_prefixes_apart(model: OfflineModel) -> None:
    ids = tuple(range(150))
    salted = [Request(str(n), ids, 2, cache_salt=salt) for n, salt in enumerate(("a", "b", "a"))]
    engine = Engine(model.model, model.experts, 64, Limits())
    cached = []
    for request in salted:
        engine.submit(request)
        while not engine.idle:
            ends = [e for e in engine.step() if isinstance(e, FinishEvent)]
            cached += [end.timing.cached_tokens for end in ends]
    assert cached == [0, 0, 128]


def test_a_drafter_that_is_never_right_is_not_asked_long() -> None:
    counting = CountingModel(max_rows=64)
    drafter = GuessingDrafter(lambda token, at: 0, 1.0, 1, VOCAB)  # sure, and always wrong
    clock, forward = Clock(), counting.forward

    def timed(spans: Any, *rest: Any) -> Any:
        clock.now += 1.0 + 0.1 * sum(len(span.tokens) for span in spans)
        return forward(spans, *rest)

    counting.forward = timed  # type: ignore[method-assign]
    engine = Engine(
        counting.as_model(), NoExperts(), 8, Limits(), drafter=drafter, clock=clock
    )  # fmt: skip
    engine.submit(Request("a", (10, 11), 200))
    tokens = []
    while not engine.idle:
        tokens += [e.token for e in engine.step() if isinstance(e, TokenEvent)]
    assert tokens == [(12 + i) % VOCAB for i in range(200)]
    assert drafter.asked < 70
    assert sum(engine.counts().verified) < 70


def test_a_row_that_is_not_a_number_ends_a_draft_and_not_the_answer() -> None:
    counting = CountingModel(max_rows=64)
    counting.poison, counting.poison_from = float("nan"), 300

    def follow(token: int, at: int) -> int:
        return 301 if at % 3 == 2 else token + 1

    drafter = GuessingDrafter(follow, 1.0, 1, VOCAB)
    engine = Engine(counting.as_model(), NoExperts(), 8, Limits(), drafter=drafter)
    engine.submit(Request("a", (10, 11), 20, draft_rows=8))
    events = []
    while not engine.idle:
        events += engine.step()
    assert [e.token for e in events if isinstance(e, TokenEvent)] == list(range(12, 32))


@pytest.mark.parametrize("stop", [14, 15, 16, 19])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_stop_inside_a_block_cuts_it_there(stop: int, rows: int) -> None:
    counting = CountingModel(max_rows=64)
    drafter = GuessingDrafter(lambda token, at: token + 1, 1.0, 1, VOCAB)
    engine = Engine(counting.as_model(), NoExperts(), 8, Limits(), drafter=drafter)
    engine.submit(Request("a", (10, 11, 12), 30, stop_ids=frozenset({stop}), draft_rows=rows))
    engine.submit(Request("b", (10, 11, 12), 5, draft_rows=rows))
    events = []
    while not engine.idle:
        events += engine.step()
    tokens = {
        n: [e.token for e in events if isinstance(e, TokenEvent) and e.request_id == n]
        for n in "ab"
    }
    assert tokens == {"a": list(range(13, stop)), "b": list(range(13, 18))}
    ends = {e.request_id: e for e in events if isinstance(e, FinishEvent)}
    assert (ends["a"].reason, ends["a"].stop_id) == ("stop", stop)
    assert ends["a"].timing.completion_tokens == stop - 13
    assert (ends["b"].reason, ends["b"].timing.completion_tokens) == ("length", 5)


def test_synthetic_acceptance_has_the_length_it_is_told() -> None:
    counting = CountingModel(max_rows=64)
    drafter = GuessingDrafter(lambda token, at: 5, 1.0, 1, VOCAB)
    engine = Engine(
        counting.as_model(), NoExperts(), 8, Limits(snapshot_bytes=0),
        drafter=drafter, synthetic=SyntheticAcceptance(3.4),
    )  # fmt: skip
    engine.submit(Request("a", (10, 11), 340))
    while not engine.idle:
        engine.step()
    counts = engine.counts()
    assert engine.synthetic_acceptance == 3.4
    assert (sum(counts.accepted) + counts.rounds) / counts.rounds == pytest.approx(3.4, abs=0.05)
    for limits, drafts in ((Limits(), drafter), (Limits(snapshot_bytes=0), None)):
        with pytest.raises(ConfigError, match="needs a drafter and no prefix reuse"):
            Engine(
                counting.as_model(), NoExperts(), 8, limits,
                drafter=drafts, synthetic=SyntheticAcceptance(2.0),
            )  # fmt: skip
    with pytest.raises(ConfigError, match="length of nan is below 1"):
        SyntheticAcceptance(float("nan"))


class _Fixed:
    """Logits that are the same at every position: a distribution to draw from."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.model = CountingModel(max_rows=64)
        forward = self.model.forward

        def same(*arguments: object) -> object:
            result = forward(*arguments)  # type: ignore[arg-type]
            result.logits[:] = logits
            return result

        self.model.forward = same  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_what_is_drawn_has_the_model_s_distribution(rows: int, seed: int) -> None:
    """Chi-square over a small vocabulary, drafts of fair and of foul kind."""
    shares = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.04], dtype=torch.float64)
    logits = torch.full((VOCAB,), -1e4, dtype=torch.float64)
    logits[:6] = torch.log(shares)
    fixed = _Fixed(logits)
    noise = random.Random(seed)
    drafter = GuessingDrafter(lambda token, at: noise.randrange(6), 1.0, seed, VOCAB)
    engine = Engine(fixed.model.as_model(), NoExperts(), 8, Limits(), drafter=drafter)
    count = 0
    seen = torch.zeros(6, dtype=torch.float64)
    for n in range(40):
        sampling = Sampling(temperature=1.0, seed=seed * 1000 + n)
        engine.submit(Request(str(n), (1, 2), 100, sampling, draft_rows=rows))
    while not engine.idle:
        for event in engine.step():
            if isinstance(event, TokenEvent):
                seen[event.token] += 1
                count += 1
    assert count == 4000
    statistic = float(((seen - count * shares) ** 2 / (count * shares)).sum())
    assert statistic < 25.7  # 5 degrees of freedom, one in ten thousand
    assert (sum(engine.counts().accepted) > 0) == (rows > 1)
