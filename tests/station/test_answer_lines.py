"""Lines of /chat from events, without a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3d.engine.request import ErrorEvent, FinishEvent, Timing, TokenEvent, TokenLogprob
from k3d.errors import NodeLost
from k3d.model.chat_format import ChatFormat
from k3d.model.tokenizer import Tokenizer
from k3d.station.chat import AnswerLines, ChatRequest

TIMING = Timing(0.5, 1.0, 2.0, 10, 9, cached_tokens=4, rounds=4, drafted=10, accepted=5)


@pytest.fixture(scope="module")
def chat_format(tiny_model: Path) -> ChatFormat:
    return ChatFormat.load(tiny_model, Tokenizer.load(tiny_model))


def test_the_last_line_carries_what_drafting_did(chat_format: ChatFormat) -> None:
    lines = AnswerLines(ChatRequest(prompt="a"), chat_format)
    (done,) = lines.lines(FinishEvent("a", "length", TIMING))
    assert (done["rounds"], done["drafted"], done["accepted"]) == (4, 10, 5)
    assert done["acceptance_length"] == 2.25
    assert done["cached_tokens"] == 4
    assert done["timing"]["tokens_per_s"] == 4.0


def test_log_probabilities_go_with_the_token_they_are_of(chat_format: ChatFormat) -> None:
    lines = AnswerLines(ChatRequest(prompt="a"), chat_format)
    logprob = TokenLogprob(104, -0.5, ((104, -0.5), (105, -2.0)))
    (line,) = lines.lines(TokenEvent("a", 104, 1, logprob))
    assert (line["text"], line["logprob"], line["top"][1]) == ("h", -0.5, (105, -2.0))
    (line,) = lines.lines(TokenEvent("a", 105, 2))
    assert "logprob" not in line


def test_every_line_of_made_up_acceptance_says_so(chat_format: ChatFormat) -> None:
    lines = AnswerLines(ChatRequest(prompt="a"), chat_format, 3.5)
    lost = NodeLost("spark-1", "spark-1 was lost")
    events = (
        TokenEvent("a", 104, 1), FinishEvent("a", "stop", TIMING), ErrorEvent("a", lost, TIMING),
    )  # fmt: skip
    found = [line for event in events for line in lines.lines(event)]
    assert [line["type"] for line in found] == ["token", "done", "error"]
    assert all(line["synthetic_acceptance"] == 3.5 for line in found)
