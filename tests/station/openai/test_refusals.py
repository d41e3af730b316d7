"""What is refused, how, and that it costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from k3d.model.chat_format import ChatFormat
from k3d.node.http import bind
from k3d.station.openai.served import Served
from k3d.station.openai.server import ApiServer
from tests.station.openai.conftest import MODEL, ROOM, Api
from tests.station.openai.fake_scheduler import FakeScheduler

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}


def schema(value: Any) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}
    }


@pytest.fixture(scope="module")
def api(byte_chat: ChatFormat, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One server for the whole module: what it refuses must leave no trace."""
    import httpx

    engine = FakeScheduler(lambda _request: list(b"ok"))
    served = Served(
        model=MODEL, digest="0" * 64, created=1, chat=byte_chat, room=ROOM,
        vocab_size=byte_chat.tokenizer.vocab_size, lanes=4, queue=60, engine=engine,
        state=lambda: ("healthy", None),
    )  # fmt: skip
    server = ApiServer(bind("127.0.0.1", 0), "127.0.0.1", served, tmp_path_factory.mktemp("home"))
    server.start()
    client = httpx.Client(base_url=server.url, timeout=30)
    yield Api(server, engine, byte_chat, client)
    client.close()
    engine.close()
    server.stop()


BOTH: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 10**400}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"n": 0}, "n"),
    ({"n": 9}, "n"),
    ({"n": 10**400}, "n"),
    ({"seed": 2**63}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": "x" * 300}, "stop"),
    ({"stop": 3}, "stop"),
    ({"stop_token_ids": [512]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": [5279552648203111001]}, "stop_token_ids"),
    ({"stop_token_ids": [0] * 65}, "stop_token_ids"),
    ({"logit_bias": {"512": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {str(at): 0 for at in range(1025)}}, "logit_bias"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": 1}, "stream_options"),
    ({"cache_salt": "x" * 1025}, "cache_salt"),
    ({"user": 1}, "user"),
]
CHAT: list[tuple[dict[str, Any], str | None]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": {"role": "user"}}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": "king", "content": "a"}]}, "messages"),
    ({"messages": [{"content": "a"}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": None}]}, "messages"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
        "url": "http://169.254.169.254/"}}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages"),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "no"}]}, "messages"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, "messages"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": 5}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "logprobs"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "retrieval"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 1}}]},
     "tools[0].function.parameters"),
    ({"tools": [TOOL] * 129}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "any", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "put"}}, "tools": [TOOL]},
     "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools"}, "tools": [TOOL]}, "tool_choice"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"chat_template_kwargs": {"colour": 1}}, "chat_template_kwargs.colour"),
    ({"response_format": {"type": "grammar"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    (schema("bar"), "response_format.json_schema.schema"),
    (schema({"type": "not-a-type"}), "response_format"),
    (schema({"properties": {"foo": "bar"}}), "response_format"),
    (schema({"$ref": "#"}), "response_format"),
    (schema({"$ref": "http://evil.example/schema"}), "response_format"),
    (schema({"type": "string", "pattern": "(", }), "response_format"),
    (schema({"type": "integer", "multipleOf": 1234567}), "response_format"),
    (schema({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}), "response_format"),
    (schema({"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}}),
     "response_format"),
    (schema({"x-guidance": {"lenient": True}}), "response_format"),
    (schema({"enum": ["x" * 10] * 7000}), None),
    ({"min_tokens": 2, "response_format": {"type": "json_object"}}, "min_tokens"),
]  # fmt: skip
TEXT: list[tuple[dict[str, Any], str | None]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["a", [1]]}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": [1.5]}, "prompt[0]"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [512]}, "prompt"),
    ({"prompt": [5279552648203111001]}, "prompt"),
    ({"prompt": ["a"] * 65}, "prompt"),
    ({"prompt": ["a"] * 10, "n": 8}, "prompt"),
    ({"prompt": {"text": "a"}}, "prompt"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"best_of": 3}, "best_of"),
    ({"suffix": "end"}, "suffix"),
    ({"echo": "yes"}, "echo"),
]


@pytest.mark.parametrize(("fields", "param"), BOTH)
@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_values_that_cannot_be_used(
    api: Api, path: str, fields: dict[str, Any], param: str
) -> None:
    prompt = {"messages": USER} if path.startswith("chat") else {"prompt": "a"}
    refused(api, path, {**prompt, **fields}, param)


@pytest.mark.parametrize(("fields", "param"), CHAT)
def test_chat_requests_that_make_no_sense(
    api: Api, fields: dict[str, Any], param: str | None
) -> None:
    refused(api, "chat/completions", {"messages": USER, **fields}, param)


@pytest.mark.parametrize(("fields", "param"), TEXT)
def test_completion_requests_that_make_no_sense(
    api: Api, fields: dict[str, Any], param: str | None
) -> None:
    refused(api, "completions", {"prompt": "a", **fields}, param)


def refused(api: Api, path: str, fields: dict[str, Any], param: str | None) -> None:
    before = len(api.engine.submitted)
    for stream in (False, True):
        if stream and "stream_options" in fields:
            continue
        status, error = api.refusal(path, **{"stream": stream, **fields})
        assert (status, error["type"]) == (400, "invalid_request_error"), error
        assert error["param"] == param, error
        assert len(error["message"]) < 500
        assert "\n" not in error["message"]
    assert len(api.engine.submitted) == before
    assert api.server.admission.choices == 0


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_a_model_that_is_not_here(api: Api, path: str) -> None:
    prompt: dict[str, Any] = {"messages": USER} if path.startswith("chat") else {"prompt": "a"}
    status, error = api.refusal(path, **{"model": "gpt-9", **prompt})
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    response = api.client.post(path, json=prompt)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "model"


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_is_said_in_the_words_that_agents_know(api: Api, stream: bool) -> None:
    long = [{"role": "user", "content": "x" * (ROOM + 1)}]
    for fields, param in (({"messages": long}, "messages"),
                          ({"messages": USER, "max_tokens": ROOM}, "max_tokens")):  # fmt: skip
        status, error = api.refusal("chat/completions", stream=stream, **fields)
        assert (status, error["code"], error["param"]) == (
            400, "context_length_exceeded", param,
        )  # fmt: skip
        assert f"maximum context length is {ROOM} tokens" in error["message"]


def test_the_last_token_that_fits_is_taken(api: Api) -> None:
    prompt = [65] * (ROOM - 5)
    assert api.completed(prompt=prompt, max_tokens=5)["choices"]
    assert api.refusal("completions", prompt=prompt, max_tokens=6)[0] == 400
    api.completed(prompt=[65] * (ROOM - 1))
    assert api.engine.submitted[-1].max_tokens == 1


def test_tools_that_are_none_are_none(api: Api) -> None:
    for choice in (None, "auto", "none"):
        api.chatted(tools=[], tool_choice=choice)
        assert api.engine.submitted[-1].constraint is None


def test_bodies_that_are_no_json(api: Api) -> None:
    for body in (b"", b"{", b"[]", b'{"a":' * 5000, b"\xff", b'{"model": NaN}'):
        response = api.client.post(
            "completions", content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"


def test_unknown_fields_are_counted(api: Api) -> None:
    def unknown() -> float:
        text = api.client.get(api.server.url.removesuffix("/v1") + "/metrics").text
        return float(text.partition("\nk3_unknown_fields_total ")[2].partition("\n")[0])

    before = unknown()
    api.completed(colour="red", weight=1, user="known")
    assert unknown() == before + 2
