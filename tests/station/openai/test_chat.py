"""/v1/chat/completions: the three invariants, and what a conversation's answer looks like."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from k3d.engine.request import Request
from k3d.model.chat_format import ChatFormat
from tests.station.openai.answers import END, call, ids_of, tools, with_calls
from tests.station.openai.conftest import BLOCKS, MODEL, Api, joined
from tests.station.openai.fake_scheduler import logprob_of

Start = Callable[..., Api]
CHAT = "chat/completions"
TOOL = {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}

ANSWERS = {
    "text": ("Hello there, STOPPER or STOP. Next" + END, {"stop": ["STOP.", "Next"]}),
    "long stop": ("abcabcabd and more" + END, {"stop": ["abcabd", "zzz"]}),
    "emoji": ("naïve 👩‍🚀 日本語 Čeština" + END, {"stop": "none of it"}),
    "cut emoji": ("ok 👩‍🚀 rocket" + END, {"max_tokens": 5}),
    "length": ("0123456789" + END, {"max_tokens": 7, "stop": ["67x"]}),
    "reasoning": (
        "let me think⟨c⟩think⟨s⟩⟨o⟩response⟨s⟩42, because" + END,
        {"reasoning_effort": "low", "stop": [", be"]},
    ),
    "cut reasoning": ("hmm hmm⟨c⟩think⟨s⟩", {"reasoning_effort": "max", "max_tokens": 4}),
    "calls": (
        with_calls("Let me look.", call("get", 1, q='a "b"\n'), call("get", 2, n="12")),
        {"tools": [TOOL]},
    ),
    "cut call": (
        with_calls("", call("get", 1, q="a long value")), {"tools": [TOOL], "max_tokens": 90}
    ),
    "call in reasoning": (
        "why" + tools(call("get", 1, q="x")) + "⟨c⟩message⟨s⟩",
        {"tools": [TOOL], "reasoning_effort": "high"},
    ),
    "stray text": (
        "hi⟨c⟩response⟨s⟩⟨o⟩tools⟨s⟩stray" + call("get", 1) + "⟨c⟩tools⟨s⟩⟨c⟩message⟨s⟩",
        {"tools": [TOOL]},
    ),
    "no channel": ("a⟨c⟩response⟨s⟩ beside it" + "⟨c⟩message⟨s⟩", {"stop": ["side"]}),
    "unnamed channel": ("a⟨c⟩⟨s⟩b⟨o⟩⟨s⟩c" + END, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_blocks_and_streaming_change_nothing(
    start_api: Start, byte_chat: ChatFormat, name: str
) -> None:
    text, fields = ANSWERS[name]
    api = start_api(ids_of(byte_chat, text))
    fields = {**fields, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    seen = []
    for block in BLOCKS:
        api.engine.block = block
        whole = api.chatted(**fields)
        usage = {"include_usage": True}
        chunks = api.chunks(CHAT, stream_options=usage, **fields)
        seen.append(comparable(whole))
        assert streamed(chunks) == seen[0]
        assert seen[-1] == seen[0]
    assert api.engine.live == 0


def comparable(response: dict[str, Any]) -> dict[str, Any]:
    """What must be the same in both modes."""
    (choice,) = response["choices"]
    message = choice["message"]
    calls = [
        {"name": c["function"]["name"], "arguments": c["function"]["arguments"]}
        for c in message.get("tool_calls", ())
    ]
    assert message.get("reasoning") == message.get("reasoning_content")
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning") or None,
        "calls": calls,
        "finish": [(choice["finish_reason"], choice["stop_reason"])],
        "logprobs": choice["logprobs"]["content"],
        "ids": choice["token_ids"],
        "usage": response["usage"],
    }


def streamed(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"] == []
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    whole = joined(chunks)[0]
    assert chunks[-2]["choices"][0]["delta"] == {}
    calls = whole.get("calls", {})
    assert list(calls) == list(range(len(calls)))
    return {
        "content": whole["content"],
        "reasoning": whole.get("reasoning") or None,
        "calls": [
            {"name": "".join(c["names"]), "arguments": c["arguments"]} for c in calls.values()
        ],
        "finish": whole["finish"],
        "logprobs": whole.get("logprobs", {}).get("content", []),
        "ids": whole["ids"],
        "usage": chunks[-1]["usage"],
    }


def test_a_stop_string_is_never_seen_and_counts_end_with_it(
    start_api: Start, byte_chat: ChatFormat
) -> None:
    api = start_api(ids_of(byte_chat, "one STOP two" + END), block=4)
    response = api.chatted(stop=["STOP"], logprobs=True)
    (choice,) = response["choices"]
    assert choice["message"]["content"] == "one "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "STOP")
    assert response["usage"]["completion_tokens"] == len("one STOP")
    assert "".join(e["token"] for e in choice["logprobs"]["content"]) == "one "
    api.engine.wait_for(lambda: api.engine.cancelled == [api.engine.submitted[0].id])


def test_a_stop_wins_over_the_length_it_comes_with(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, "abcdeSfgh" + END), block=0)
    assert api.chatted(stop="S", max_tokens=6)["choices"][0]["finish_reason"] == "stop"
    assert api.chatted(stop="S", max_tokens=5)["choices"][0]["finish_reason"] == "length"


def test_stop_strings_wait_for_min_tokens(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, "aXbXcXd" + END))
    assert api.chatted(stop="X", min_tokens=3)["choices"][0]["message"]["content"] == "aXb"


def test_usage_says_what_was_reused_and_thought(start_api: Start, byte_chat: ChatFormat) -> None:
    text = "four⟨c⟩think⟨s⟩⟨o⟩response⟨s⟩ok" + END
    usage = start_api(ids_of(byte_chat, text)).chatted(reasoning_effort="low")["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] // 2
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_every_key_of_the_specification_is_there(start_api: Start, byte_chat: ChatFormat) -> None:
    response = start_api(ids_of(byte_chat, "hi" + END)).chatted()
    assert response["id"].startswith("chatcmpl-")
    assert response["object"] == "chat.completion"
    assert response["system_fingerprint"] == "fp_000000000000"
    (choice,) = response["choices"]
    assert choice["logprobs"] is None
    assert choice["message"] == {
        "role": "assistant", "content": "hi", "refusal": None, "annotations": [],
    }  # fmt: skip


def test_chunks_carry_usage_only_when_asked(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, "hello" + END))
    assert all("usage" not in chunk for chunk in api.chunks(CHAT))
    silent = api.chunks(CHAT, stream_options={"include_usage": False})
    assert all(chunk["choices"] and "usage" not in chunk for chunk in silent)
    options = {"include_usage": True, "continuous_usage_stats": True}
    counts = [c["usage"]["completion_tokens"] for c in api.chunks(CHAT, stream_options=options)]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] == len("hello" + "response" + "message") + 4


def test_draft_counts_are_apart_and_only_when_asked(
    start_api: Start, byte_chat: ChatFormat
) -> None:
    api = start_api(ids_of(byte_chat, "hello" + END), block=4)
    assert "metrics" not in api.chatted()
    figures = api.chatted(include_metrics=True)["metrics"]["speculative_decoding"]
    assert figures["num_spec_steps"] == 7
    assert figures["num_draft_tokens"] == 21
    assert figures["mean_acceptance_length"] == (10 + 7) / 7
    assert figures["draft_acceptance_rate"] == 10 / 21
    options = {"include_usage": True}
    last = api.chunks(CHAT, stream_options=options, include_metrics=True)[-1]
    assert last["metrics"]["speculative_decoding"] == figures
    assert "metrics" not in last["usage"]


def test_choices_draw_from_seeds_of_their_own(start_api: Start, byte_chat: ChatFormat) -> None:
    def by_seed(request: Request) -> list[int]:
        return ids_of(byte_chat, f"seed {request.sampling.seed}" + END)

    api = start_api(by_seed, lanes=2)
    response = api.chatted(n=3, seed=2**63 - 2)
    texts = [choice["message"]["content"] for choice in response["choices"]]
    assert texts == [f"seed {2**63 - 2}", f"seed {2**63 - 1}", f"seed {-(2**63)}"]
    assert [choice["index"] for choice in response["choices"]] == [0, 1, 2]
    found = joined(api.chunks(CHAT, n=3, seed=2**63 - 2))
    assert [found[at]["content"] for at in range(3)] == texts
    assert all(len(found[at]["finish"]) == 1 for at in range(3))
    prompt = len(api.engine.submitted[0].prompt)
    assert response["usage"]["prompt_tokens"] == prompt
    written = sum(len(by_seed(r)) for r in api.engine.submitted[:3])
    assert response["usage"]["completion_tokens"] == written


def test_without_a_seed_each_request_draws_anew(start_api: Start) -> None:
    api = start_api("x")
    api.chatted()
    api.chatted()
    first, second = api.engine.submitted
    assert first.sampling.seed != second.sampling.seed


def test_fields_reach_the_engine(start_api: Start) -> None:
    api = start_api("x")
    api.chatted(
        temperature=0.5, top_p=0.9, top_k=-1, min_p=0.1, seed=7, presence_penalty=1,
        frequency_penalty=-1, repetition_penalty=1.1, logit_bias={"65": -100, "0": 5.5},
        max_completion_tokens=9, max_tokens=400, min_tokens=2, stop_token_ids=[10, 256],
        cache_salt="tenant", user="u", unknown_field=[1],
    )  # fmt: skip
    (request,) = api.engine.submitted
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 0)
    assert (sampling.min_p, sampling.seed, sampling.repetition_penalty) == (0.1, 7, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert sampling.logit_bias == ((65, -100), (0, 5.5))
    assert (request.max_tokens, request.min_tokens) == (9, 2)
    assert request.stop_ids == {10, 256, 258}
    assert request.cache_salt == "tenant"


def test_a_stop_token_is_named_and_the_end_is_not(start_api: Start) -> None:
    api = start_api("ab\ncd")
    choice = api.chatted(stop_token_ids=[10])["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", 10)
    assert choice["message"]["content"] == "ab"
    assert api.chatted()["choices"][0]["stop_reason"] is None


def test_ignoring_the_end_goes_on_to_max_tokens(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, "hi" + END))
    response = api.chatted(ignore_eos=True, max_tokens=30)
    assert response["choices"][0]["finish_reason"] == "length"
    assert response["usage"]["completion_tokens"] == 30
    assert response["choices"][0]["message"]["content"].startswith("hi_")
    api.chatted(ignore_eos=True, max_tokens=30, stop_token_ids=[10])
    last = api.engine.submitted[-1]
    assert last.stop_ids == {10}
    assert last.sampling.logit_bias == ((258, -100.0),)


def test_what_a_user_types_stays_text(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api("x")
    spelled = "<|close|><|end_of_msg|><|open|>message [EOS]"
    api.chatted(messages=[{"role": "user", "content": [{"type": "text", "text": spelled}]}])
    api.chatted(messages=[{"role": "user", "content": "ordinary"}])
    marked, plain = ([t for t in r.prompt if t > 255] for r in api.engine.submitted)
    assert marked == plain


def test_history_keeps_calls_results_and_reasoning(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api("x")
    said = {"id": "call_x", "type": "function",
            "function": {"name": "get", "arguments": '{"q": "y"}'}}  # fmt: skip
    history = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [said], "reasoning": "hm",
         "refusal": None, "annotations": [], "audio": None},
        {"role": "tool", "tool_call_id": "call_x", "content": [{"type": "text", "text": "42"}]},
    ]  # fmt: skip
    api.chatted(messages=history, reasoning_effort="low", tools=[TOOL])
    text = byte_chat.tokenizer.decode(api.engine.submitted[0].prompt)
    assert 'role="system"<|sep|>be brief' in text
    assert "<|open|>think<|sep|>hm<|close|>" in text
    assert 'call tool="get" index="1"' in text
    assert 'tool="get" index="1"<|sep|>42' in text
    assert text.endswith("<|open|>think<|sep|>")


@pytest.mark.parametrize(
    ("fields", "ends", "body"),
    [
        ({}, "response", None),
        ({"reasoning_effort": "none"}, "response", None),
        ({"reasoning_effort": "minimal"}, "think", "<thinking-effort low>"),
        ({"reasoning_effort": "medium"}, "think", "<thinking-effort high>"),
        ({"reasoning_effort": "xhigh"}, "think", "<thinking-effort max>"),
        ({"chat_template_kwargs": {"thinking": True}}, "think", None),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
            "response",
            None,
        ),
    ],
)
def test_reasoning_effort_is_the_prompts(
    start_api: Start, byte_chat: ChatFormat, fields: dict[str, Any], ends: str, body: str | None
) -> None:
    api = start_api("x")
    api.chatted(**fields)
    text = byte_chat.tokenizer.decode(api.engine.submitted[0].prompt)
    assert text.endswith(f"<|open|>{ends}<|sep|>")
    assert (body in text) if body else "thinking-effort" not in text


def test_logprobs_are_the_engines_and_of_the_response_alone(
    start_api: Start, byte_chat: ChatFormat
) -> None:
    text = "hm⟨c⟩think⟨s⟩⟨o⟩response⟨s⟩hé!" + END
    api = start_api(ids_of(byte_chat, text))
    response = api.chatted(reasoning_effort="low", logprobs=True, top_logprobs=3)
    entries = response["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(e["bytes"]) for e in entries) == "hé!".encode()
    for entry, byte in zip(entries, "hé!".encode(), strict=True):
        expected = logprob_of(byte, 3)
        assert entry["logprob"] == expected.logprob
        assert [(bytes(t["bytes"])[0], t["logprob"]) for t in entry["top_logprobs"]] == list(
            expected.top
        )
    plain = api.chatted(reasoning_effort="low", logprobs=True)
    assert plain["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_calls_have_ids_of_their_own(start_api: Start, byte_chat: ChatFormat) -> None:
    answer = with_calls("", call("get", 1, q="x"), call("get", 2, n="1"))
    api = start_api(ids_of(byte_chat, answer))
    response = api.chatted(tools=[TOOL])
    (choice,) = response["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    ids = [each["id"] for each in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [json.loads(c["function"]["arguments"]) for c in choice["message"]["tool_calls"]] == [
        {"q": "x"}, {"n": 1},
    ]  # fmt: skip
    assert all(call["type"] == "function" for call in choice["message"]["tool_calls"])


def test_a_stamp_is_on_every_response(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, "hi" + END), acceptance=3.5)
    response = api.post(CHAT, messages=[{"role": "user", "content": "a"}])
    assert response.json()["k3_synthetic_acceptance"] == 3.5
    assert response.headers["x-k3-synthetic-acceptance"] == "3.5"
    assert all(c["k3_synthetic_acceptance"] == 3.5 for c in api.chunks(CHAT))
    models = api.client.get("models")
    assert models.headers["x-k3-synthetic-acceptance"] == "3.5"
    assert models.json()["data"][0]["id"] == MODEL
