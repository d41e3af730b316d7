"""/v1/completions: prompts of every form, echo, scores, the three invariants again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from k3d.engine.request import Request
from tests.station.openai.conftest import BLOCKS, Api, joined
from tests.station.openai.fake_scheduler import logprob_of

Start = Callable[..., Api]
PATH = "completions"


def comparable(choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": choice["text"],
        "finish": [(choice["finish_reason"], choice["stop_reason"])],
        "logprobs": choice["logprobs"],
        "ids": choice["token_ids"],
    }


def streamed(whole: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": whole["content"],
        "finish": whole["finish"],
        "logprobs": whole.get("logprobs"),
        "ids": whole["ids"],
    }


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        ("plain text", {}),
        ("a STOP b", {"stop": "STOP"}),
        ("cut here", {"max_tokens": 3}),
        ("👩‍🚀 ok", {"max_tokens": 6}),
        ([*list(b"a\xffb\xe6\x97\x9c"), 256, 257], {"skip_special_tokens": False}),
        ([*list(b"\xe6\x97"), 256, 65], {}),
        ("more", {"echo": True, "prompt": "the prompt é "}),
        ("more", {"echo": True, "prompt": ["one", "two é"], "n": 2}),
        ("more", {"echo": True, "prompt": [[65, 256, 66], [67]], "max_tokens": 1}),
    ],
)
def test_blocks_and_streaming_change_nothing(
    start_api: Start, script: str | list[int], fields: dict[str, Any]
) -> None:
    api = start_api(script)
    fields = {"prompt": "p", **fields, "logprobs": 2, "return_token_ids": True}
    first: dict[str, Any] | None = None
    for block in BLOCKS:
        api.engine.block = block
        response = api.completed(**fields)
        seen = {c["index"]: comparable(c) for c in response["choices"]}
        chunks = api.chunks(PATH, stream_options={"include_usage": True}, **fields)
        assert {at: streamed(w) for at, w in joined(chunks).items()} == seen
        assert chunks[-1]["usage"] == response["usage"]
        assert first is None or first == {**seen, "usage": response["usage"]}
        first = {**seen, "usage": response["usage"]}
    assert api.engine.live == 0


def test_echo_and_logprobs_score_the_prompt(start_api: Start) -> None:
    api = start_api("xy")
    choice = api.completed(prompt="aé", echo=True, logprobs=1, max_tokens=1)["choices"][0]
    assert choice["text"] == "aéx"
    scores = choice["logprobs"]
    assert scores["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9", "x"]
    assert scores["text_offset"] == [0, 1, 1, 2]
    expected = [None, *(logprob_of(t, 1).logprob for t in (0xC3, 0xA9, ord("x")))]
    assert scores["token_logprobs"] == expected
    assert scores["top_logprobs"][0] is None
    assert scores["top_logprobs"][3] == {"x": logprob_of(ord("x"), 1).logprob}


def test_a_prompt_is_scored_without_writing_anything(start_api: Start) -> None:
    api = start_api("never")
    scored = api.completed(prompt=[[65, 66, 67]], echo=True, logprobs=0, max_tokens=0)
    (choice,) = scored["choices"]
    assert choice["text"] == "ABC"
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"]["token_logprobs"] == [
        None, logprob_of(66, 0).logprob, logprob_of(67, 0).logprob,
    ]  # fmt: skip
    assert [list(top) for top in choice["logprobs"]["top_logprobs"][1:]] == [["B"], ["C"]]
    assert scored["usage"]["completion_tokens"] == 0
    assert api.completed(prompt="ABC", echo=True, max_tokens=0)["choices"][0]["text"] == "ABC"
    assert api.engine.submitted[0].prompt_logprobs


def test_logprobs_0_says_the_token_alone(start_api: Start) -> None:
    choice = start_api("x").completed(logprobs=0)["choices"][0]
    assert choice["logprobs"]["top_logprobs"] == [{"x": logprob_of(ord("x"), 0).logprob}]
    assert start_api("x").completed()["choices"][0]["logprobs"] is None


def test_every_form_of_prompt_is_read(start_api: Start) -> None:
    def reversed_prompt(request: Request) -> list[int]:
        return list(reversed(request.prompt))

    api = start_api(reversed_prompt)
    for prompt, texts in (
        ("ab", ["ba"]),
        (["ab", "cd"], ["ba", "dc"]),
        ([97, 98], ["ba"]),
        ([[97, 98], [99]], ["ba", "c"]),
    ):
        response = api.completed(prompt=prompt)
        assert [c["text"] for c in response["choices"]] == texts
        assert response["usage"]["prompt_tokens"] == sum(map(len, texts))


def test_choices_of_prompts_stand_together(start_api: Start) -> None:
    def prompt_and_seed(request: Request) -> list[int]:
        return [*request.prompt, *str(request.sampling.seed).encode()]

    response = start_api(prompt_and_seed).completed(prompt=["a", "b"], n=2, seed=5)
    assert [c["text"] for c in response["choices"]] == ["a5", "a6", "b5", "b6"]
    assert [c["index"] for c in response["choices"]] == [0, 1, 2, 3]


def test_a_character_that_the_prompt_began_is_finished_not_repeated(start_api: Start) -> None:
    api = start_api([0xB6, 0x21])
    prompt = [*list(b"Hello world "), 240, 159, 140]
    chunks = api.chunks(PATH, prompt=prompt)
    assert joined(chunks)[0]["content"] == "🌶!"


def test_special_tokens_have_text_only_when_asked(start_api: Start) -> None:
    api = start_api([65, 259, 66])
    assert api.completed()["choices"][0]["text"] == "AB"
    assert api.completed(skip_special_tokens=False)["choices"][0]["text"] == "A<|open|>B"


def test_sixteen_tokens_where_nobody_says(start_api: Start) -> None:
    assert len(start_api("x" * 99).completed()["choices"][0]["text"]) == 16


def test_a_response_has_its_shape(start_api: Start) -> None:
    response = start_api("x").completed()
    assert response["id"].startswith("cmpl-")
    assert response["object"] == "text_completion"
    assert set(response["choices"][0]) == {
        "index", "text", "finish_reason", "stop_reason", "logprobs",
    }  # fmt: skip
