"""Messages of a conversation, checked, with tool results in the order of the calls they answer.

Callers hand over mappings in the shape of the chat completions API. What a message says wrongly is
refused with a sentence that names the message and the field, because a message that is dropped or
half read gives a fluent answer to another conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from k3d.errors import ConfigError, Refused


@dataclass(frozen=True)
class ToolCall:
    """A call in the assistant's history."""

    name: str
    arguments: Mapping[str, Any]
    """The arguments in their given order; empty when `raw` holds them."""
    raw: str | None = None
    """Arguments that are not valid JSON, as they came."""
    call_id: str | None = None


@dataclass(frozen=True)
class ChatMessage:
    """One message. Fields beyond `content` belong to the roles named."""

    role: str
    content: tuple[str, ...] = ()
    """Texts of the content's parts, which are encoded apart."""
    name: str | None = None
    """Of system, user and assistant."""
    tools: Any = None
    """Of system: tools that it adds to the conversation; its content is then ignored."""
    reasoning: str = ""
    """Of assistant; empty when there is none but white space."""
    calls: tuple[ToolCall, ...] = ()
    """Of assistant."""
    tool: str | None = None
    """Of tool: the function whose result this is."""
    call_id: str | None = None
    """Of tool: id of the call it answers."""
    index: int = 0
    """Of tool: its place among the results since the last assistant message, from 1."""


def read_messages(messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """The messages, checked, tool results sorted and named.

    Raises ConfigError for a malformed message and Refused for content that is not text.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise ConfigError("messages: expected a list")
    read = [_read_message(each, f"messages[{at}]") for at, each in enumerate(messages)]
    return _number_results(_order_results(read))


def _read_message(message: Any, where: str) -> ChatMessage:
    if not isinstance(message, Mapping):
        raise ConfigError(f"{where}: expected an object, got {type(message).__name__}")
    role = message.get("role")
    match role:
        case "system" if message.get("tools"):
            return ChatMessage(role, tools=message["tools"])
        case "system" | "user":
            return ChatMessage(
                role, _read_content(message, where), name=_optional_string(message, "name", where)
            )
        case "assistant":
            reasoning = _optional_string(message, "reasoning_content", where) or _optional_string(
                message, "reasoning", where
            )
            return ChatMessage(
                role,
                _read_content(message, where),
                name=_optional_string(message, "name", where),
                reasoning=reasoning if reasoning and reasoning.strip() else "",
                calls=tuple(_read_calls(message.get("tool_calls"), f"{where}.tool_calls")),
            )
        case "tool":
            return ChatMessage(
                role,
                _read_content(message, where),
                tool=_optional_string(message, "tool" if "tool" in message else "name", where),
                call_id=_read_id(message, "tool_call_id" if "tool_call_id" in message else "id"),
            )
    raise ConfigError(
        f"{where}.role: {role!r} is not a role", hint="use system, user, assistant or tool"
    )


def _read_content(message: Mapping[str, Any], where: str) -> tuple[str, ...]:
    content = message.get("content")
    if content is None:
        return ()
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list):
        raise ConfigError(f"{where}.content: expected a string or a list of parts")
    texts: list[str] = []
    for at, part in enumerate(content):
        here = f"{where}.content[{at}]"
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if kind in ("image", "image_url"):
            raise Refused(f"{here}: an image", hint="this model is served for text only")
        if kind != "text" or not isinstance(part.get("text"), str):
            raise ConfigError(f'{here}: expected {{"type": "text", "text": "..."}}')
        texts.append(part["text"])
    return tuple(texts)


def _read_calls(calls: Any, where: str) -> Iterator[ToolCall]:
    if calls is None:
        return
    if not isinstance(calls, list):
        raise ConfigError(f"{where}: expected a list")
    for at, call in enumerate(calls):
        here = f"{where}[{at}]"
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise ConfigError(f"{here}: expected an object with a function object")
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{here}.function.name: expected the name of a function")
        arguments, raw = _read_arguments(function.get("arguments"), f"{here}.function.arguments")
        yield ToolCall(name, arguments, raw, _read_id(call, "id"))


def _read_arguments(arguments: Any, where: str) -> tuple[Mapping[str, Any], str | None]:
    if arguments is None:
        return {}, None
    if isinstance(arguments, str):
        if not arguments.strip():
            return {}, None
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}, arguments
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        raise ConfigError(f"{where}: expected a JSON object", hint="name every argument")
    return arguments, None


def _optional_string(message: Mapping[str, Any], key: str, where: str) -> str | None:
    value = message.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where}.{key}: expected a string, got {type(value).__name__}")
    return value


def _read_id(holder: Mapping[str, Any], key: str) -> str | None:
    """Ids are opaque; a number is taken for its digits."""
    value = holder.get(key)
    return None if value is None else str(value)


def _order_results(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Each run of tool results in the order of the calls that the last assistant made.

    A run whose ids do not all belong to those calls stays as it is.
    """
    calls: tuple[ToolCall, ...] = ()
    run: list[ChatMessage] = []
    for message in messages:
        if message.role == "tool":
            run.append(message)
            continue
        yield from _order_run(run, calls)
        run = []
        if message.role == "assistant":
            calls = message.calls
        yield message
    yield from _order_run(run, calls)


def _order_run(run: list[ChatMessage], calls: tuple[ToolCall, ...]) -> list[ChatMessage]:
    position_of: dict[str, int] = {}
    for position, call in enumerate(calls):
        if call.call_id is not None:
            position_of.setdefault(call.call_id, position)
    if not all(result.call_id in position_of for result in run):
        return run
    answered = [(position_of[result.call_id or ""], result) for result in run]
    answered.sort(key=lambda each: each[0])
    return [replace(result, tool=calls[position].name) for position, result in answered]


def _number_results(messages: Iterator[ChatMessage]) -> list[ChatMessage]:
    """Tool results with their index; one without a name takes that of the call at its place."""
    numbered: list[ChatMessage] = []
    calls: tuple[ToolCall, ...] = ()
    results = 0
    for at, message in enumerate(messages):
        if message.role == "assistant":
            calls, results = message.calls, 0
        elif message.role == "tool":
            results += 1
            tool = message.tool
            if tool is None:
                if results > len(calls):
                    raise ConfigError(
                        f"messages[{at}]: a tool result that answers no call",
                        hint="give it the tool_call_id of a call, or the name of its function",
                    )
                tool = calls[results - 1].name
            message = replace(message, tool=tool, index=results)
        numbered.append(message)
    return numbered
