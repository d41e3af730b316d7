"""A chat request made the model's: messages, tools and formats for the prompt, and the grammar
that the answer must follow, if any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3d.errors import K3Error
from k3d.model.chat_format import ChatOptions
from k3d.station.openai.answer_grammar import AnswerShape, Tool, answer_grammar
from k3d.station.openai.errors import ApiError, bad_value, of_reading
from k3d.station.openai.grammar import GrammarConstraint, Grammars
from k3d.station.openai.limits import MOST_SCHEMA_BYTES, MOST_TOOLS
from k3d.station.openai.requests import ChatCompletionRequest
from k3d.station.openai.schema_cost import check_cost
from k3d.station.openai.served import Served

_EFFORTS = {
    "none": None,
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_INSTEAD = {
    "functions": "give tools instead",
    "function_call": "give tool_choice instead",
}


@dataclass(frozen=True)
class ReadChat:
    """What a chat request comes to."""

    prompt: tuple[int, ...]
    thinking: bool
    constraint: GrammarConstraint | None


def read_chat(request: ChatCompletionRequest, served: Served, grammars: Grammars) -> ReadChat:
    """Encode the prompt and compile the grammar: slow for large requests. Raises ApiError."""
    _refuse_what_is_not_served(request)
    thinking, effort = _thinking(request, served)
    tools = _tools(request.tools)
    choice = _tool_choice(request.tool_choice, tools)
    options = ChatOptions(
        tools=[spelled for spelled, _ in tools.values()],
        thinking=thinking,
        effort=effort,
        tool_choice=_said_in_the_prompt(choice) if tools else None,
        response_format=request.response_format,
    )
    param = "response_format" if request.response_format else "tools"
    try:
        shape = _shape(request, thinking, tools, choice)
        constraint = None if shape is None else grammars.compile(answer_grammar(shape))
        param = "messages"
        prompt = served.chat.encode(
            [_message(m, at) for at, m in enumerate(request.messages)], options
        )
    except K3Error as error:
        raise of_reading(error, param) from error
    if constraint is not None and request.min_tokens:
        raise bad_value("min_tokens", "a grammar says when this answer ends; leave min_tokens out")
    return ReadChat(tuple(prompt), thinking, constraint)


def _refuse_what_is_not_served(request: ChatCompletionRequest) -> None:
    for param, advice in _INSTEAD.items():
        if getattr(request, param) is not None:
            raise bad_value(param, f"it is not served; {advice}", code="unsupported")
    if request.modalities is not None and request.modalities != ["text"]:
        raise bad_value("modalities", "only text is served", code="unsupported")


def _thinking(request: ChatCompletionRequest, served: Served) -> tuple[bool, str | None]:
    """Whether the answer begins with reasoning, and the effort; the template's options win."""
    default = served.chat.default_effort
    thinking, effort = default is not None, default
    if request.reasoning_effort is not None:
        thinking, effort = _effort(request.reasoning_effort, "reasoning_effort")
    for key, value in (request.chat_template_kwargs or {}).items():
        param = f"chat_template_kwargs.{key[:40]}"
        if key in ("thinking", "enable_thinking") and isinstance(value, bool):
            thinking = value
        elif key in ("effort", "thinking_effort", "reasoning_effort") and isinstance(value, str):
            thinking, effort = _effort(value, param)
        else:
            raise bad_value(param, "the chat format has no such option, or not with that value")
    return thinking, effort if thinking else None


def _effort(asked: str, param: str) -> tuple[bool, str | None]:
    if asked not in _EFFORTS:
        raise bad_value(param, f"{asked[:40]!r} is not one of {', '.join(_EFFORTS)}")
    return asked != "none", _EFFORTS[asked]


def _message(message: Mapping[str, Any], at: int) -> Mapping[str, Any]:
    """A message as the chat format reads it."""
    role = message.get("role")
    if role == "developer":
        return {**message, "role": "system", "tools": None}
    if role in ("system", "user") and message.get("content") is None:
        raise ApiError(f"messages[{at}]: a {role} message needs content", param="messages")
    if role == "system" and "tools" in message:
        return {**message, "tools": None}  # tools are the request's to declare
    return message


def _tools(given: list[dict[str, Any]] | None) -> dict[str, tuple[dict[str, Any], bool]]:
    """Tools by name, as they were spelled, with whether they are strict."""
    tools: dict[str, tuple[dict[str, Any], bool]] = {}
    if len(given or ()) > MOST_TOOLS:
        raise bad_value("tools", f"{len(given or ())} tools; at most {MOST_TOOLS} are allowed")
    for at, tool in enumerate(given or ()):
        param = f"tools[{at}]"
        function = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(function, dict):
            raise bad_value(param, 'expected {"type": "function", "function": {...}}')
        name = function.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise bad_value(f"{param}.function.name", "expected letters, digits, _ . : and -")
        if name in tools:
            raise bad_value(f"{param}.function.name", f"there are two tools named {name!r}")
        if not isinstance(function.get("description", ""), str | None):
            raise bad_value(f"{param}.function.description", "expected a string")
        if not isinstance(function.get("parameters", {}), dict | None):
            raise bad_value(f"{param}.function.parameters", "expected a JSON schema, an object")
        strict = function.get("strict")
        if not isinstance(strict, bool | None):
            raise bad_value(f"{param}.function.strict", "expected true or false")
        tools[name] = (tool, bool(strict))
    return tools


def _tool_choice(choice: str | dict[str, Any] | None, tools: Mapping[str, Any]) -> str:
    """auto, none, required, or the name of the one tool to call, behind a colon."""
    if choice is None or choice in ("auto", "none"):
        return choice if isinstance(choice, str) else "auto"
    if not tools:
        raise bad_value("tool_choice", "there are no tools to choose from")
    if choice == "required":
        return "required"
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and name in tools:
            return f":{name}"
        raise bad_value("tool_choice", f"there is no tool named {str(name)[:128]!r}")
    raise bad_value(
        "tool_choice",
        'expected "auto", "none", "required" or {"type": "function", "function": {"name": ...}}',
    )


def _said_in_the_prompt(choice: str) -> str | None:
    """The format has no words for a named tool: the grammar sees to the name."""
    return {"auto": None, "none": "none"}.get(choice, "required")


def _shape(
    request: ChatCompletionRequest,
    thinking: bool,
    tools: Mapping[str, tuple[dict[str, Any], bool]],
    choice: str,
) -> AnswerShape | None:
    """What the answer has to be; None where it is free."""
    schema = _response_schema(request.response_format)
    several = request.parallel_tool_calls is not False
    strict = any(strict for _, strict in tools.values())
    if not tools:
        return None if schema is None else AnswerShape(thinking, schema)
    response = "free" if schema is None else schema
    if choice == "none":
        return AnswerShape(thinking, response)
    if choice == "auto" and schema is None and several and not strict:
        return None
    named = choice.removeprefix(":") if choice.startswith(":") else None
    callable_tools = [
        _tool(name, tool["function"]) for name, (tool, _) in tools.items() if named in (None, name)
    ]
    return AnswerShape(
        thinking,
        response,
        callable_tools,
        must_call=choice != "auto",
        several_calls=several and named is None,
    )


def _tool(name: str, function: Mapping[str, Any]) -> Tool:
    parameters = function.get("parameters")
    if parameters is not None:
        _check_size(parameters, f"the parameters of {name}")
    return Tool(name, parameters)


def _response_schema(given: dict[str, Any] | None) -> Mapping[str, Any] | None:
    """The JSON schema of the response; None for text."""
    if given is None or given.get("type") == "text":
        return None
    if given.get("type") == "json_object":
        return {"type": "object"}
    if given.get("type") != "json_schema":
        raise bad_value("response_format.type", "expected text, json_object or json_schema")
    wrapper = given.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    if not isinstance(schema, dict):
        raise bad_value("response_format.json_schema.schema", "expected a JSON schema, an object")
    _check_size(schema, "the schema")
    return schema


def _check_size(schema: Mapping[str, Any], what: str) -> None:
    size = len(repr(schema))
    if size > MOST_SCHEMA_BYTES:
        raise ApiError(f"{what} has {size} bytes; at most {MOST_SCHEMA_BYTES} are allowed")
    check_cost(schema)
