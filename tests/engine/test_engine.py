"""Turns, ends, refusals and lost nodes."""

from __future__ import annotations

from collections import Counter

import pytest

from k3d.engine.engine import Engine, Limits
from k3d.engine.request import (
    ErrorEvent,
    Event,
    FinishEvent,
    Request,
    Sampling,
    TokenEvent,
)
from k3d.errors import BankError, ConfigError, ExitCode, K3Error, NodeLost, Refused
from k3d.model.kimi_k3 import Span
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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_numbers_end_the_request_only(value: float) -> None:
    bench = Bench()
    bench.submit("a")
    bench.submit("b")
    events = bench.engine.step() + bench.engine.step()
    bench.model.poison, bench.model.poison_from = value, 100  # b's tokens
    *others, failed = bench.engine.step()
    bench.model.poison = None
    assert isinstance(failed, ErrorEvent)
    assert failed.request_id == "b"
    assert "not numbers" in failed.error.message
    assert tokens([*events, *others, *bench.run()], "a") == [13, 14, 15, 16]
    assert bench.engine.counts().failed == 1


def lost(node: str = "spark-2") -> NodeLost:
    return NodeLost(node, f"{node} stopped answering")


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_lost_node_that_comes_back_costs_no_token(after: int) -> None:
    bench = Bench(recover_s=10.0)
    bench.submit("a", prompt=6, tokens=4)
    bench.submit("b", tokens=4)
    events = [event for _ in range(after) for event in bench.engine.step()]
    bench.model.fail_next = [lost()] * 5
    for _ in range(5):
        assert bench.engine.step() == []
        assert bench.engine.lost is not None
        assert bench.engine.lost.node == "spark-2"
        bench.clock.now += 1.0
    assert bench.experts.abandoned == 5
    events += bench.run()
    assert tokens(events, "a") == [16, 17, 18, 19]
    assert tokens(events, "b") == [113, 114, 115, 116]
    assert bench.engine.lost is None


def test_a_node_that_stays_away_ends_every_request() -> None:
    bench = Bench(recover_s=10.0, lanes=1)
    bench.submit("a", tokens=9)
    bench.submit("b", tokens=9)
    bench.engine.step()
    bench.model.fail_next = [lost()] * 3
    assert bench.engine.step() == []
    bench.clock.now += 9.9
    assert bench.engine.step() == []
    bench.clock.now += 0.2
    events = bench.engine.step()
    assert [event.request_id for event in events] == ["a", "b"]
    for event in events:
        assert isinstance(event, ErrorEvent)
        assert isinstance(event.error, NodeLost)
        assert event.error.node == "spark-2"
        assert "spark-2" in event.error.message
        assert event.error.retryable
    assert bench.engine.idle
    assert bench.engine.lost is None


def test_time_to_recover_counts_anew_for_each_loss() -> None:
    bench = Bench(recover_s=10.0)
    bench.submit("a", tokens=9)
    for _ in range(3):
        bench.model.fail_next = [lost()]
        assert bench.engine.step() == []
        bench.clock.now += 6.0
        assert bench.engine.step() != []
    assert bench.engine.counts().failed == 0


@pytest.mark.parametrize("leave", ["cancel", "fail_all", "error"])
def test_a_loss_that_nobody_waits_for_is_forgotten(leave: str) -> None:
    """The next request, much later, gets its full time to wait for the node."""
    bench = Bench(recover_s=10.0)
    bench.submit("a")
    bench.model.fail_next = [lost()]
    assert bench.engine.step() == []
    if leave == "cancel":
        bench.engine.cancel("a")
    elif leave == "fail_all":
        bench.engine.fail_all(K3Error("the pod is going down"))
    else:
        bench.model.fail_next = [BankError("a record is damaged")]
        bench.engine.step()
    assert bench.engine.idle
    assert bench.engine.lost is None
    bench.clock.now += 100.0
    bench.submit("b")
    bench.model.fail_next = [lost("spark-3")]
    assert bench.engine.step() == []
    assert len(tokens(bench.run(), "b")) == 4


def test_other_errors_end_the_requests_of_their_pass() -> None:
    bench = Bench(lanes=1)
    bench.submit("a")
    bench.submit("b")
    bench.model.fail_next = [BankError("bank x: the record of layer 3 expert 4 is damaged")]
    [event] = bench.engine.step()
    assert isinstance(event, ErrorEvent)
    assert (event.request_id, event.error.code) == ("a", ExitCode.FAILED)
    assert len(tokens(bench.run(), "b")) == 4


def test_an_error_of_one_sequence_does_not_end_the_others() -> None:
    """The pass fails, then every part runs alone, and only one of them fails again."""
    bench = Bench()
    bench.submit("a", prompt=3)
    bench.submit("b")
    events = bench.engine.step() + bench.engine.step()
    damaged = BankError("bank x: the record of layer 3 expert 4 is damaged")
    forward = bench.model.forward

    def only_b_fails(spans: list[Span], *others: object) -> object:
        if any(token >= 100 for span in spans for token in span.tokens):
            raise damaged
        return forward(spans, *others)  # type: ignore[arg-type]

    bench.model.forward = only_b_fails  # type: ignore[method-assign,assignment]
    events += bench.run()
    assert tokens(events, "a") == [13, 14, 15, 16]
    [failed] = [event for event in events if isinstance(event, ErrorEvent)]
    assert (failed.request_id, failed.error) == ("b", damaged)
    assert bench.engine.idle


def test_a_node_lost_after_a_part_ran_alone_loses_no_token() -> None:
    bench = Bench(recover_s=10.0)
    bench.submit("a", prompt=3)
    bench.submit("b")
    events = bench.engine.step() + bench.engine.step()
    forward, asked = bench.model.forward, []

    def fails(spans: list[Span], *others: object) -> object:
        asked.append(len(spans))
        if len(asked) == 1:
            raise BankError("bank x: the record of layer 3 expert 4 is damaged")
        if len(asked) == 3:
            raise lost()
        return forward(spans, *others)  # type: ignore[arg-type]

    bench.model.forward = fails  # type: ignore[method-assign,assignment]
    events += bench.engine.step()
    assert asked == [2, 1, 1]
    events += bench.run()
    assert tokens(events, "a") == [13, 14, 15, 16]
    assert tokens(events, "b") == [113, 114, 115, 116]


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
