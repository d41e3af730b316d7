"""What does not end an answer: a lost node that comes back, and another sequence's error."""

from __future__ import annotations

import pytest

from k3d.engine.request import (
    ErrorEvent,
)
from k3d.errors import BankError, ExitCode, K3Error, NodeLost
from k3d.model.kimi_k3 import Span
from tests.engine.bench import Bench, tokens


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
