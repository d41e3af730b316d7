"""Kimi-K3's chat format: a conversation rendered to segments, and those to token ids.

There is no template; this is the rendering. A prompt is, in order: the declared tools, the
thinking effort, the messages, the tool choice, the response format, and the opening of the
assistant's message, which the model continues. No [BOS] comes first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3d.errors import ConfigError
from k3d.model import prompt_bodies
from k3d.model.chat_messages import ChatMessage, ToolCall, read_messages
from k3d.model.chat_segments import (
    CLOSE,
    END_OF_MESSAGE,
    OPEN,
    SEPARATOR,
    Segment,
    element,
    encode_segments,
    message,
    open_tag,
    text,
)
from k3d.model.chat_stream import ChatStream
from k3d.model.prompt_bodies import PromptBodies, read_prompt_bodies
from k3d.model.tokenizer import Tokenizer

EFFORTS = ("low", "high", "max")
TOOL_CHOICES = ("auto", "none", "required")

_AFTER_JSON = "\n```"


@dataclass(frozen=True)
class ChatOptions:
    """What a request asks for beside its messages."""

    tools: Sequence[Any] = ()
    """Tools declared before the conversation, as the request spells them."""
    thinking: bool = True
    """Whether the answer begins with reasoning. Off, history loses its reasoning too."""
    effort: str | None = None
    """"low", "high" or "max"; None sends no effort message. Of no effect without thinking."""
    tool_choice: str | None = None
    """"auto", "none" or "required"; None and "auto" add nothing to the prompt."""
    response_format: Mapping[str, Any] | None = None
    """{"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}}."""
    generation_prompt: bool = True
    """Whether the prompt ends in the opening of the assistant's answer."""


@dataclass(frozen=True)
class ChatFormat:
    """The chat format of one checkpoint: its tokenizer and its prompt bodies."""

    tokenizer: Tokenizer
    bodies: PromptBodies
    default_effort: str | None
    """Effort of a request that names none: "max" where the release ships its bodies, as the
    vendor's own entry point has it; None for a checkpoint without them."""

    @classmethod
    def load(cls, folder: str | Path, tokenizer: Tokenizer | None = None) -> ChatFormat:
        """The chat format of a checkpoint folder. Raises CheckpointError for damaged files and for
        a tokenizer without the format's markers."""
        tokenizer = tokenizer or Tokenizer.load(folder)
        encode_segments(tokenizer, (OPEN, CLOSE, SEPARATOR, END_OF_MESSAGE))
        bodies = read_prompt_bodies(Path(folder))
        released = bodies.released and bodies.reason is None
        return cls(tokenizer, bodies, default_effort="max" if released else None)

    @property
    def stop_id(self) -> int:
        """The id that ends the model's answer."""
        return self.tokenizer.special_id(END_OF_MESSAGE.spelling)

    def encode(
        self, messages: Sequence[Mapping[str, Any]], options: ChatOptions | None = None
    ) -> list[int]:
        """Ids of the prompt. Raises ConfigError, Refused (images) or CheckpointError (a body that
        the checkpoint lacks)."""
        return encode_segments(self.tokenizer, self.render(messages, options))

    def render(
        self, messages: Sequence[Mapping[str, Any]], options: ChatOptions | None = None
    ) -> list[Segment]:
        """Segments of the prompt; errors as `encode`."""
        return render(messages, options or ChatOptions(), self.bodies)

    def stream(self, *, thinking: bool = True) -> ChatStream:
        """A parser of the answer to a prompt rendered with the same `thinking`."""
        return ChatStream(self.tokenizer, thinking=thinking)


def render(
    messages: Sequence[Mapping[str, Any]], options: ChatOptions, bodies: PromptBodies
) -> list[Segment]:
    """Segments of a whole prompt.

    Raises ConfigError for a request that makes no sense, Refused for images, and CheckpointError
    when the request needs a body that the checkpoint does not have.
    """
    _check(options)
    segments: list[Segment] = []
    if options.tools:
        segments += _declare_tools(options.tools, bodies.text(prompt_bodies.TOOL_DECLARE))
    if options.thinking and options.effort is not None:
        body = bodies.text(prompt_bodies.thinking_effort(options.effort))
        segments += _instruction("thinking-effort", body)
    for each in read_messages(messages):
        segments += _render_message(each, options.thinking, bodies)
    if options.tool_choice in ("none", "required"):
        body = bodies.text(prompt_bodies.tool_choice(options.tool_choice))
        segments += _instruction("tool-choice", body)
    segments += _response_format(options.response_format, bodies)
    if options.generation_prompt:
        segments += open_tag("message", ("role", "assistant"))
        segments += open_tag("think" if options.thinking else "response")
    return segments


def _check(options: ChatOptions) -> None:
    if options.effort is not None and options.effort not in EFFORTS:
        raise ConfigError(
            f"thinking effort {options.effort!r} is not one that the model knows",
            hint=f"use {', '.join(EFFORTS)}",
        )
    if options.tool_choice is not None and options.tool_choice not in TOOL_CHOICES:
        raise ConfigError(
            f"tool_choice {options.tool_choice!r} is not one that the model knows",
            hint=f"use {', '.join(TOOL_CHOICES)}",
        )


def _render_message(each: ChatMessage, thinking: bool, bodies: PromptBodies) -> list[Segment]:
    if each.tools:
        return _declare_tools(each.tools, bodies.text(prompt_bodies.DYNAMIC_TOOL_DECLARE))
    attributes = [("role", each.role)]
    if each.role == "tool":
        attributes += [("tool", each.tool or ""), ("index", str(each.index))]
    elif each.name:
        attributes.append(("name", each.name))
    body = [segment for part in each.content for segment in text(part)]
    if each.role == "assistant":
        body = _assistant_body(each, body, thinking)
    return message(body, *attributes)


def _assistant_body(each: ChatMessage, content: list[Segment], thinking: bool) -> list[Segment]:
    body: list[Segment] = []
    if thinking:
        body += element("think", text(each.reasoning))
    body += element("response", content)
    if each.calls:
        calls = [
            segment
            for index, call in enumerate(each.calls, start=1)
            for segment in element(
                "call", _arguments(call), ("tool", call.name), ("index", str(index))
            )
        ]
        body += element("tools", calls)
    return body


def _arguments(call: ToolCall) -> list[Segment]:
    if call.raw is not None:
        return element("json", text(call.raw), ("type", "object"))
    segments: list[Segment] = []
    for key, value in call.arguments.items():
        spelled = value if isinstance(value, str) else _json(value, f"argument {key!r}")
        kind = ("type", _type_of(value))
        segments += element("argument", text(spelled), ("key", key), kind)
    return segments


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
    return "array"


def _declare_tools(tools: Any, before_json: str) -> list[Segment]:
    body = before_json + _canonical_json(tools, "tools") + _AFTER_JSON
    return _instruction("tool-declare", body)


def _response_format(
    response_format: Mapping[str, Any] | None, bodies: PromptBodies
) -> list[Segment]:
    if response_format is None:
        return []
    if not isinstance(response_format, Mapping):
        raise ConfigError("response_format: expected an object with a type")
    match kind := response_format.get("type"):
        case "text":
            return []
        case "json_object":
            body = bodies.text(prompt_bodies.RESPONSE_JSON_OBJECT)
        case "json_schema":
            schema = _canonical_json(_schema(response_format), "response_format.json_schema")
            body = bodies.text(prompt_bodies.RESPONSE_JSON_SCHEMA) + schema + _AFTER_JSON
        case _:
            raise ConfigError(
                f"response_format.type: {kind!r} is not one that the model knows",
                hint="use text, json_object or json_schema",
            )
    return _instruction("response-format", body)


def _schema(response_format: Mapping[str, Any]) -> Any:
    """The schema itself, which requests wrap in an object with a name, or do not."""
    wrapper = response_format.get("json_schema")
    schema = wrapper
    if isinstance(wrapper, Mapping):
        schema = wrapper.get("schema", wrapper.get("json_schema", wrapper))
    if schema is None:
        raise ConfigError("response_format.json_schema: no schema", hint="give json_schema.schema")
    return schema


def _instruction(kind: str, body: str) -> list[Segment]:
    return message(text(body), ("role", "system"), ("type", kind))


def _canonical_json(value: Any, what: str) -> str:
    """Keys sorted at every depth, no spaces, characters beyond ASCII kept."""
    return _json(value, what, sort_keys=True, separators=(",", ":"))


def _json(value: Any, what: str, **style: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, **style)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} cannot be written as JSON: {error}") from None
