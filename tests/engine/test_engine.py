"""Turns, ends and refusals."""

from __future__ import annotations

from collections import Counter

import pytest

from k3d.engine.request import (
    FinishEvent,
    Request,
    Sampling,
    TokenEvent,
)
from k3d.errors import ConfigError, ExitCode, Refused
from tests.engine.bench import Bench, end_of, tokens


def test_greedy() -> None:
    bench = Bench()
    bench.submit("a", prompt=3, tokens=4)
    events = bench.run()
    assert tokens(events, "a") == [13, 14, 15, 16]
    assert [e.position for e in events if isinstance(e, TokenEvent)] == [3, 4, 5, 6]
    end = end_of(events, "a")
    assert isinstance(end, FinishEvent)
    assert end.reason == "length"
    assert (end.timing.prompt_tokens, end.timing.completion_tokens) == (3, 4)
    assert bench.model.passes == [[[10, 11, 12]], [[13]], [[14]], [[15]]]


@pytest.mark.parametrize("prompt", [1, 3, 4, 5, 8, 11])
def test_prompts_go_in_chunks(prompt: int) -> None:
    bench = Bench(chunk=4)
    bench.submit("a", prompt=prompt, tokens=2)
    assert tokens(bench.run(), "a") == [10 + prompt, 11 + prompt]
    sizes = [len(rows) for [rows] in bench.model.passes]
    assert sizes[:-1] == [4] * (prompt // 4) + [prompt % 4] * (prompt % 4 > 0)
    assert sizes[-1] == 1


def test_stop_ids_end_the_answer_and_are_not_part_of_it() -> None:
    bench = Bench()
    bench.submit("a", tokens=9, stop_ids=frozenset({15, 383}))
    events = bench.run()
    assert tokens(events, "a") == [13, 14]
    end = end_of(events, "a")
    assert isinstance(end, FinishEvent)
    assert (end.reason, end.timing.completion_tokens) == ("stop", 2)


def test_a_stop_id_in_the_prompt_stops_nothing() -> None:
    bench = Bench()
    bench.submit("a", tokens=2, stop_ids=frozenset({10, 11}))
    assert tokens(bench.run(), "a") == [13, 14]


def owners(passes: list[list[list[int]]]) -> list[str]:
    """Whose rows each pass holds, in order."""
    return ["".join("abc"[rows[0] // 100] for rows in spans) for spans in passes]


def test_prompts_take_turns_and_lanes_that_decode_are_in_every_pass() -> None:
    bench = Bench(chunk=4)
    bench.submit("a", prompt=20, tokens=1)
    bench.submit("b", prompt=2, tokens=4)
    bench.submit("c", prompt=2, tokens=3)
    bench.run()
    assert owners(bench.model.passes) == ["a", "b", "bc", "bca", "bca", "a", "a"]


def test_a_long_prompt_takes_small_chunks_beside_lanes_that_decode() -> None:
    bench = Bench(chunk=4, shared_chunk=2)
    bench.submit("a", tokens=6)
    bench.engine.step()
    bench.submit("b", prompt=9, tokens=2)
    bench.run()
    sizes = [[len(rows) for rows in spans] for spans in bench.model.passes]
    assert sizes == [[3], [1, 2], [1, 2], [1, 2], [1, 2], [1, 1], [1]]


def test_late_comers_get_as_much() -> None:
    bench = Bench()
    bench.submit("a", tokens=100)
    for _ in range(10):
        bench.engine.step()
    bench.submit("b", tokens=50)
    events = [event for _ in range(10) for event in bench.engine.step()]
    count = Counter(e.request_id for e in events if isinstance(e, TokenEvent))
    assert count == {"a": 10, "b": 10}


def test_company_changes_no_token() -> None:
    alone = Bench()
    sampling = Sampling(temperature=1.5, seed=4)
    alone.submit("a", tokens=30, sampling=sampling)
    wanted = tokens(alone.run(), "a")
    crowd = Bench()
    for name in "bac":
        crowd.submit(name, tokens=30, sampling=sampling)
    assert tokens(crowd.run(), "a") == wanted


def test_lanes_are_bounded() -> None:
    bench = Bench(lanes=2)
    for name in "abc":
        bench.submit(name, tokens=2)
    bench.engine.step()
    assert (bench.engine.counts().running, bench.engine.counts().waiting) == (2, 1)
    events = bench.run()
    assert all(len(tokens(events, name)) >= 1 for name in "abc")
    counts = bench.engine.counts()
    assert (counts.running, counts.waiting, counts.finished, counts.failed) == (0, 0, 3, 0)


def test_a_full_queue_refuses() -> None:
    bench = Bench(queue=2)
    bench.submit("a")
    bench.submit("b")
    with pytest.raises(Refused, match="2 requests are waiting") as caught:
        bench.submit("c")
    assert caught.value.code == ExitCode.REFUSED
    bench.engine.step()
    bench.submit("c")
    assert len(tokens(bench.run(), "c")) == 4


def test_cancel() -> None:
    bench = Bench(lanes=1)
    bench.submit("a", tokens=50)
    bench.submit("b", tokens=2)
    for _ in range(3):
        bench.engine.step()
    [end] = bench.engine.cancel("a")
    assert isinstance(end, FinishEvent)
    assert (end.reason, end.timing.completion_tokens) == ("cancelled", 3)
    assert bench.engine.counts().cancelled == 1
    assert bench.engine.cancel("a") == []
    assert tokens(bench.run(), "b") == [113, 114]
    bench.submit("a")
    [end] = bench.engine.cancel("a")  # while it waits
    assert isinstance(end, FinishEvent)
    assert end.timing.completion_tokens == 0
    assert bench.engine.idle


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request("x", (), 4), "holds no token"),
        (Request("x", (1, 384), 4), "token id 384 is not in a vocabulary of 384"),
        (Request("x", (-1,), 4), "token id -1"),
        (Request("x", (1,), 0), "max_tokens 0"),
        (Request("x", (1,) * 90, 11), "90 tokens and 11 to come exceed the context of 100"),
        (Request("x", (1,), 4, Sampling(temperature=-1.0)), "temperature -1.0"),
        (Request("x", (1,), 4, Sampling(temperature=float("nan"))), "temperature nan"),
        (Request("x", (1,), 4, Sampling(top_p=0.0)), "top_p 0.0"),
        (Request("x", (1,), 4, Sampling(top_p=1.5)), "top_p 1.5"),
        (Request("x", (1,), 4, Sampling(top_k=-1)), "top_k -1"),
        (Request("x", (1,), 4, Sampling(seed=2**63)), "seed 9223372036854775808"),
    ],
)
def test_requests_that_cannot_run(request_: Request, says: str) -> None:
    bench = Bench(max_positions=100)
    with pytest.raises(ConfigError, match=says):
        bench.engine.submit(request_)
    assert bench.engine.idle


def test_the_context_may_be_filled_to_the_last_position() -> None:
    bench = Bench(max_positions=100)
    bench.submit("a", prompt=90, tokens=10)
    assert len(tokens(bench.run(), "a")) == 10


@pytest.mark.parametrize("chunk", [0, 9])
def test_a_chunk_that_the_model_has_no_room_for(chunk: int) -> None:
    with pytest.raises(ConfigError, match=f"chunk {chunk} is not between 1 and 8"):
        Bench(chunk=chunk)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_ids_that_are_no_tokens_are_never_written(temperature: float, seed: int) -> None:
    """After token t the model likes t + 1 best; a head may be wider than the vocabulary."""
    bench = Bench(vocabulary=24)
    sampling = Sampling(temperature=temperature, seed=seed)
    bench.submit("a", prompt=13, tokens=12, sampling=sampling)
    written = tokens(bench.run(), "a")
    assert len(written) == 12
    assert max(written) < 24
    with pytest.raises(ConfigError, match="token id 110 is not in a vocabulary of 24"):
        bench.submit("b")


def test_timing_and_totals() -> None:
    bench = Bench(chunk=4, lanes=1)
    model = bench.model
    forward = model.forward

    def slow(*arguments: object) -> object:
        bench.clock.now += 2.0
        return forward(*arguments)  # type: ignore[arg-type]

    model.forward = slow  # type: ignore[method-assign,assignment]
    bench.submit("a", prompt=8, tokens=3)
    bench.submit("b", prompt=4, tokens=1)
    events = bench.run()
    first, second = end_of(events, "a").timing, end_of(events, "b").timing
    assert (first.queue_s, first.prompt_s, first.decode_s) == (0.0, 4.0, 4.0)
    assert (second.queue_s, second.prompt_s, second.decode_s) == (8.0, 2.0, 0.0)
    counts = bench.engine.counts()
    assert (counts.prompt_tokens, counts.prompt_s) == (12, 6.0)
    assert (counts.decode_tokens, counts.decode_s, counts.passes) == (2, 4.0, 5)


def test_an_idle_engine_does_nothing() -> None:
    bench = Bench()
    assert bench.engine.idle
    assert bench.engine.step() == []
    assert bench.engine.cancel("a") == []
