"""The grammar of a whole answer in the chat format, with parts of it forced.

An answer is: reasoning, if the prompt opened that channel; the response; calls, if any; the end of
the message. A grammar covers all of it, so that the markers come where they belong; only the
response and the calls are narrowed. Reasoning stays free. Text is matched by bytes and never
contains a marker, since markers are special tokens.

Arguments of a call are written in the format's own form, one element each, where the schema is
plain; where it is not (references, unions, patterns, open objects), the call is one block of JSON,
which the format has for that, and the whole schema holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from k3d.errors import ConfigError
from k3d.model.chat_segments import escape_attribute

# Space between JSON tokens, bounded so that a weak model cannot go on with it for ever.
_SPACE = r"[ \n]{0,16}"
_MOST_ARGUMENTS = 64
_EXACT = 2**53 - 1

_KINDS = {
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
    "array": "array",
}
_NOTES = frozenset({"title", "description", "default", "examples", "$schema", "strict"})


@dataclass(frozen=True)
class Tool:
    """A function that may be called; `parameters` is a JSON schema, None for no arguments."""

    name: str
    parameters: Mapping[str, Any] | None


@dataclass(frozen=True)
class AnswerShape:
    """What an answer has to be. `response` is free text, or JSON of a schema."""

    thinking: bool
    response: Mapping[str, Any] | Literal["free"] = "free"
    tools: Sequence[Tool] = ()
    must_call: bool = False
    """Whether there is a call for sure, and no response text."""
    several_calls: bool = True


def answer_grammar(shape: AnswerShape) -> str:
    """The grammar, in llguidance's Lark. Raises ConfigError for what cannot be written as JSON."""
    rules = [f"start: {'reasoning ' if shape.thinking else ''}answer"]
    if shape.thinking:
        rules.append(f"reasoning: TEXT {_close('think')} {_open('response')}")
    response = "TEXT" if shape.response == "free" else _json(shape.response)
    end = f"{_close('response')} {{}}{_close('message')}"
    calls = end.format("tools " if shape.tools else "")
    if shape.must_call:
        rules.append(f"answer: {calls}")
    elif not shape.tools:
        rules.append(f"answer: {response} {end.format('')}")
    elif shape.response == "free":
        rules.append(f"answer: TEXT {end.format('tools? ')}")
    else:
        rules.append(f"answer: {response} {end.format('')}\n  | {calls}")
    if shape.tools:
        rules += _tools(shape.tools, several=shape.several_calls)
    rules.append(r"TEXT: /(?s:.*)/")
    return "\n".join(rules)


def _tools(tools: Sequence[Tool], *, several: bool) -> Iterator[str]:
    more = " more*" if several else ""
    yield f"tools: {_open('tools')} first{more} {_close('tools')}"
    yield "first: " + " | ".join(f"first_{at}" for at in range(len(tools)))
    if several:
        yield "more: " + " | ".join(f"more_{at}" for at in range(len(tools)))
    for at, tool in enumerate(tools):
        begin = _text(f'call tool="{escape_attribute(tool.name)}" index="')
        end = f'"\\"" <|sep|> arguments_{at} {_close("call")}'
        yield f'first_{at}: <|open|> {begin} "1" {end}'
        if several:
            yield f"more_{at}: <|open|> {begin} /[2-9]|[1-9][0-9]/ {end}"
        yield f"arguments_{at}: {_arguments(tool.parameters)}"


def _arguments(schema: Mapping[str, Any] | None) -> str:
    if schema is None:
        return _text("")
    plain = _plain_arguments(schema)
    if plain is not None:
        return plain or _text("")
    tag = _open_with('json type="object"')
    return f"{tag} {_json({'type': 'object', **schema})} {_close('json')}"


def _plain_arguments(schema: Mapping[str, Any]) -> str | None:
    """An element for each property in its order; None where that would not say it all."""
    if "properties" not in schema and schema.get("additionalProperties") is not False:
        return None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if (
        not set(schema) <= _NOTES | {"type", "properties", "required", "additionalProperties"}
        or schema.get("type", "object") != "object"
        or not isinstance(schema.get("additionalProperties", False), bool)
        or not isinstance(properties, dict)
        or not isinstance(required, list)
        or not all(name in properties for name in required)
        or len(properties) > _MOST_ARGUMENTS
    ):
        return None
    elements: list[str] = []
    for name, inner in properties.items():
        value = _value(inner) if isinstance(inner, dict) else None
        if value is None:
            return None
        kind, rule = value
        tag = _open_with(f'argument key="{escape_attribute(name)}" type="{kind}"')
        element = f"{tag} {rule} {_close('argument')}"
        elements.append(element if name in required else f"({element})?")
    return " ".join(elements)


def _value(schema: dict[str, Any]) -> tuple[str, str] | None:
    """Type and rule of one argument; None where it takes more than that to say."""
    kind, rest = schema.get("type"), set(schema) - _NOTES - {"type"}
    if kind == "string" and not rest:
        return "string", "TEXT"
    if kind in (None, "string") and rest == {"enum"}:
        words = schema["enum"]
        if isinstance(words, list) and words and all(isinstance(w, str) and w for w in words):
            return "string", "(" + " | ".join(map(_text, words)) + ")"
        return None
    if not isinstance(kind, str) or kind not in _KINDS or _refers(schema):
        return None
    return _KINDS[kind], _json(schema)


def _refers(schema: Any) -> bool:
    """Whether a schema reaches outside itself, or says where it is."""
    if isinstance(schema, dict):
        keys = ("$ref", "$id", "$anchor", "$dynamicRef", "$recursiveRef")
        return any(key in schema for key in keys) or any(map(_refers, schema.values()))
    return isinstance(schema, list) and any(map(_refers, schema))


def _json(schema: Mapping[str, Any]) -> str:
    if "x-guidance" in schema:
        raise ConfigError("x-guidance: a schema cannot set options of the grammar")
    options = {"whitespace_pattern": _SPACE, "lenient": False}
    return "%json " + _spelled({"x-guidance": options, **_with_bounds(schema)})


def _with_bounds(schema: Any) -> Any:
    """The schema, with integers bounded where it leaves one side open: beyond 2**53 JSON does not
    carry them exactly, and a weak model writes digits without end."""
    if isinstance(schema, list):
        return [_with_bounds(inner) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    bounded = {key: _with_bounds(inner) for key, inner in schema.items()}
    if schema.get("type") != "integer" or {"enum", "const", "multipleOf"} & set(schema):
        return bounded
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None and isinstance(most, int | float | None):
        bounded["minimum"] = int(min(0, most or 0)) - _EXACT
    if most is None and isinstance(least, int | float | None):
        bounded["maximum"] = int(max(0, least or 0)) + _EXACT
    return bounded


def _open(tag: str) -> str:
    return _open_with(tag)


def _open_with(tag: str) -> str:
    return f"<|open|> {_text(tag)} <|sep|>"


def _close(tag: str) -> str:
    return f"<|close|> {_text(tag)} <|sep|>"


def _text(text: str) -> str:
    return _spelled(text)


def _spelled(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"it cannot be written as JSON: {error}") from None
