"""tool_choice and response_format: the grammar that holds an answer to them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from k3d.engine.request import Request
from k3d.errors import ConfigError
from k3d.model.chat_format import ChatFormat
from k3d.model.chat_stream import parse_answer
from k3d.station.openai.answer_grammar import AnswerShape, Tool, answer_grammar
from k3d.station.openai.grammar import GrammarConstraint, Grammars
from tests.station.openai.answers import END, call, ids_of, with_calls
from tests.station.openai.conftest import BLOCKS, Api

Start = Callable[..., Api]
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "where"},
        "unit": {"type": "string", "enum": ["c", 'f "x"\n&']},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city"],
}
ODD = {
    "type": "object",
    "properties": {"code": {"type": "string", "pattern": "^[a-f]{2,4}$"}},
    "required": ["code"],
    "additionalProperties": False,
}
PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def tool(name: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
    function = {"name": name, **more}
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


@pytest.fixture(scope="module")
def grammars(byte_chat: ChatFormat) -> Grammars:
    return Grammars(byte_chat.tokenizer, byte_chat.tokenizer.vocab_size, byte_chat.stop_id)


def written(
    constraint: GrammarConstraint, chat: ChatFormat, random_: random.Random, most: int = 600
) -> list[int]:
    """An answer drawn from what the grammar allows, markers preferred, with steps taken back."""
    ids: list[int] = []
    while len(ids) < most:
        allowed = constraint.allowed()
        choices = allowed.nonzero().flatten().tolist()
        markers = [t for t in choices if t >= chat.tokenizer.first_special_id]
        ends = [t for t in choices if t in (ord('"'), ord("}"))]
        token = random_.choice(
            markers if markers and random_.random() < 0.3
            else ends if ends and random_.random() < 0.3
            else choices
        )  # fmt: skip
        assert constraint.advance(token)
        if random_.random() < 0.2:
            count = random_.randint(1, min(3, len(ids) + 1))
            again = [*ids, token][len(ids) + 1 - count :]
            constraint.take_back(count)
            assert all(constraint.advance(each) for each in again)
        ids.append(token)
        if token == chat.stop_id:
            return ids
    return ids


@pytest.mark.parametrize(
    "shape",
    [
        AnswerShape(True),
        AnswerShape(False, PAIR),
        AnswerShape(True, {"type": "object"}),
        AnswerShape(True, tools=[Tool("weather", WEATHER), Tool("odd", ODD)], must_call=True),
        AnswerShape(False, tools=[Tool("now", None)], must_call=True, several_calls=False),
        AnswerShape(False, tools=[Tool("free", {"type": "object"}), Tool("now", None)]),
        AnswerShape(False, PAIR, tools=[Tool("odd", ODD)]),
    ],
)
def test_whatever_a_grammar_allows_is_a_well_formed_answer(
    grammars: Grammars, byte_chat: ChatFormat, shape: AnswerShape, seed: int
) -> None:
    random_ = random.Random(seed)
    compiled = grammars.compile(answer_grammar(shape))
    ended = 0
    for _ in range(12):
        ids = written(compiled.copy(), byte_chat, random_)
        answer = parse_answer(byte_chat.tokenizer, ids, thinking=shape.thinking)
        assert not answer.malformed
        if not answer.complete:
            continue
        ended += 1
        assert ids[-1] == byte_chat.stop_id
        assert bool(answer.calls) >= shape.must_call
        assert len(answer.calls) <= 1 or shape.several_calls
        if shape.must_call:
            assert answer.response == ""
        if shape.response != "free" and not answer.calls:
            value = json.loads(answer.response)
            assert shape.response is not PAIR or value["b"] in ("x", "y")
        for each in answer.calls:
            check_arguments(each.name, json.loads(each.arguments))
    assert ended


def check_arguments(name: str, arguments: dict[str, Any]) -> None:
    if name == "weather":
        assert set(arguments) <= {"city", "unit", "days"}
        assert isinstance(arguments["city"], str)
        assert arguments.get("unit", "c") in ("c", 'f "x"\n&')
        assert arguments.get("days", 1) in range(1, 10)
    elif name == "odd":
        assert set(arguments["code"]) <= set("abcdef")
        assert 2 <= len(arguments["code"]) <= 4
    elif name == "now":
        assert arguments == {}


def test_after_the_end_only_the_end_and_it_can_be_taken_back(
    grammars: Grammars, byte_chat: ChatFormat
) -> None:
    constraint = grammars.compile(answer_grammar(AnswerShape(False, tools=())))
    ids = ids_of(byte_chat, "hi" + END)
    stop = byte_chat.stop_id
    assert all(constraint.advance(token) for token in ids)
    assert constraint.allowed().nonzero().flatten().tolist() == [stop]
    assert not constraint.advance(65)
    assert constraint.advance(stop)
    assert constraint.advance(stop)
    constraint.take_back(3)
    assert constraint.allowed().nonzero().flatten().tolist() == ids[-1:]
    constraint.take_back(len(ids) - 1)
    assert constraint.advance(ids[0])


def test_a_token_that_is_not_allowed_changes_nothing(
    grammars: Grammars, byte_chat: ChatFormat
) -> None:
    constraint = grammars.compile(answer_grammar(AnswerShape(False, PAIR)))
    before = constraint.allowed().clone()
    assert not constraint.advance(ord("x"))
    assert (constraint.allowed() == before).all()
    assert constraint.advance(ord("{"))


def test_copies_go_their_own_ways(grammars: Grammars) -> None:
    first = grammars.compile(answer_grammar(AnswerShape(False, PAIR)))
    assert first.advance(ord("{"))
    second = first.copy()
    assert second.advance(ord('"'))
    assert first.advance(ord(" "))
    assert second.advance(ord("a"))


@pytest.mark.parametrize(
    ("bounds", "digits"),
    [
        ({}, 16),
        ({"minimum": 5}, 16),
        ({"exclusiveMaximum": 10}, 1),
        ({"enum": [3, 99999]}, 5),
    ],
)
def test_an_integer_ends(grammars: Grammars, bounds: dict[str, Any], digits: int) -> None:
    shape = AnswerShape(False, {"type": "integer", **bounds})
    constraint = grammars.compile(answer_grammar(shape))
    written = 0
    while constraint.advance(ord("9")):
        written += 1
    assert digits - 1 <= written <= digits


@pytest.mark.parametrize("width", [384, 1000])
def test_logits_may_be_narrower_or_wider_than_the_tokenizer(
    byte_chat: ChatFormat, width: int
) -> None:
    grammars = Grammars(byte_chat.tokenizer, width, byte_chat.stop_id)
    allowed = grammars.compile(answer_grammar(AnswerShape(True))).allowed()
    assert allowed.shape == (width,)
    assert not allowed[262:].any()
    assert allowed[65]


def test_a_grammar_that_outgrows_its_limits_ends_its_own_answer_only(
    grammars: Grammars, byte_chat: ChatFormat, start_api: Start
) -> None:
    constraint = grammars.compile(answer_grammar(AnswerShape(False)))
    constraint._fail("too many items")
    assert constraint.allowed().nonzero().flatten().tolist() == [byte_chat.stop_id]
    assert constraint.advance(byte_chat.stop_id)

    def broken(request: Request) -> list[int]:
        assert isinstance(request.constraint, GrammarConstraint)
        request.constraint._fail("too many items")
        return [65]

    status, error = start_api(broken).refusal(
        "chat/completions",
        messages=[{"role": "user", "content": "a"}],
        response_format={"type": "json_object"},
    )
    assert status == 400
    assert "too many items" in error["message"]


def test_names_are_escaped_and_odd_schemas_become_one_block() -> None:
    lark = answer_grammar(AnswerShape(False, tools=[Tool('a"b&c', {"$ref": "#/$defs/x"})]))
    assert "a&quot;b&amp;c" in lark
    assert 'json type=\\"object\\"' in lark
    with pytest.raises(ConfigError, match="x-guidance"):
        answer_grammar(AnswerShape(False, {"x-guidance": {}}))


@pytest.mark.parametrize("block", BLOCKS)
def test_json_is_json_whatever_the_model_would_say(
    start_api: Start, byte_chat: ChatFormat, block: int
) -> None:
    api = start_api(ids_of(byte_chat, 'Sure! {"a": 12, "b": "y"}' + END), block=block)
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": PAIR, "strict": True}}
    choice = api.chatted(response_format=form, max_tokens=200)["choices"][0]
    assert choice["finish_reason"] == "stop"
    value = json.loads(choice["message"]["content"])
    assert set(value) == {"a", "b"}
    text = byte_chat.tokenizer.decode(api.engine.submitted[0].prompt)
    assert "<response-format json_schema>" in text


def test_a_required_call_is_made_and_a_named_one_is_that(
    start_api: Start, byte_chat: ChatFormat
) -> None:
    api = start_api(ids_of(byte_chat, "I would rather talk." + END))
    tools = [tool("now"), tool("odd", ODD)]
    choice = api.chatted(tools=tools, tool_choice="required", max_tokens=300)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    named = {"type": "function", "function": {"name": "odd"}}
    choice = api.chatted(tools=tools, tool_choice=named, max_tokens=300)["choices"][0]
    (made,) = choice["message"]["tool_calls"]
    assert made["function"]["name"] == "odd"
    check_arguments("odd", json.loads(made["function"]["arguments"]))
    text = byte_chat.tokenizer.decode(api.engine.submitted[-1].prompt)
    assert "<tool-choice required>" in text
    assert '"name":"now"' in text  # declared all the same, so that the prefix stays


def test_none_means_no_call(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, with_calls("well", call("now", 1))))
    choice = api.chatted(tools=[tool("now")], tool_choice="none", max_tokens=80)["choices"][0]
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"


def test_one_call_at_a_time(start_api: Start, byte_chat: ChatFormat) -> None:
    two = with_calls("", call("now", 1), call("now", 2))
    api = start_api(ids_of(byte_chat, two))
    tools = [tool("now")]
    assert len(api.chatted(tools=tools)["choices"][0]["message"]["tool_calls"]) == 2
    assert api.engine.submitted[-1].constraint is None
    one = api.chatted(tools=tools, parallel_tool_calls=False)["choices"][0]
    assert len(one["message"]["tool_calls"]) == 1
    assert one["finish_reason"] == "tool_calls"


def test_a_strict_tool_gets_arguments_that_fit(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, with_calls("", call("odd", 1, code="zzz"))))
    strict = api.chatted(tools=[tool("odd", ODD, strict=True)], max_tokens=300)["choices"][0]
    for made in strict["message"]["tool_calls"]:
        check_arguments("odd", json.loads(made["function"]["arguments"]))
    loose = api.chatted(tools=[tool("odd", ODD)])["choices"][0]
    assert loose["message"]["tool_calls"][0]["function"]["arguments"] == '{"code": "zzz"}'


def test_a_format_holds_for_the_response_and_tools_may_still_be_called(
    start_api: Start, byte_chat: ChatFormat
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": PAIR}}
    calls = with_calls("", call("now", 1))
    api = start_api(ids_of(byte_chat, calls))
    choice = api.chatted(tools=[tool("now")], response_format=form)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    api = start_api(ids_of(byte_chat, '{"a":1,"b":"x"}' + END))
    choice = api.chatted(tools=[tool("now")], response_format=form)["choices"][0]
    assert json.loads(choice["message"]["content"]) == {"a": 1, "b": "x"}


def test_reasoning_is_free_and_what_follows_is_not(start_api: Start, byte_chat: ChatFormat) -> None:
    text = 'it is { "odd⟨c⟩think⟨s⟩⟨o⟩response⟨s⟩not json at all' + END
    api = start_api(ids_of(byte_chat, text))
    choice = api.chatted(
        reasoning_effort="low", response_format={"type": "json_object"}, max_tokens=200
    )["choices"][0]
    assert choice["message"]["reasoning"] == 'it is { "odd'
    assert choice["finish_reason"] in ("stop", "length")
    assert choice["message"]["content"].startswith("{")


def test_every_choice_follows_the_grammar(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, '{"a": 3, "b": "x"}' + END), block=2)
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": PAIR}}
    choices = api.chatted(response_format=form, n=3)["choices"]
    assert [json.loads(c["message"]["content"]) for c in choices] == [{"a": 3, "b": "x"}] * 3


def test_a_call_cut_by_length_is_length(start_api: Start, byte_chat: ChatFormat) -> None:
    api = start_api(ids_of(byte_chat, with_calls("", call("get", 1, q="long enough"))))
    for block in BLOCKS:
        api.engine.block = block
        choice = api.chatted(tools=[tool("get")], max_tokens=100)["choices"][0]
        assert choice["finish_reason"] == "length"
        (made,) = choice["message"]["tool_calls"]
        assert made["function"]["arguments"].startswith('{"q": "')
