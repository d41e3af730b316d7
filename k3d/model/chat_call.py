"""One tool call of an answer: its typed arguments turned into streamed JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from k3d.model.chat_events import CallArguments, CallFinished, CallStarted, ChatEvent, Malformed

_KINDS: dict[str, type | tuple[type, ...]] = {
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}


class StreamedCall:
    """Collects one call. Text of strings streams as it comes; other values when they are whole.

    A call has either arguments, each with a key and a type, or one block of raw JSON. What the
    model gets wrong is reported and kept: a value that is not of its type's JSON becomes a string.
    """

    def __init__(self, index: int, name: str):
        self.index = index
        self.name = name
        self._keys: set[str] = set()
        self._kind: str | None = None
        """Type of the value that is open: of an argument, "json" for a raw block, "ignored"."""
        self._held: list[str] = []
        """Text of the open value that was not given out yet, or of the whole raw block."""
        self._raw_given = False

    def start(self) -> Iterator[ChatEvent]:
        yield CallStarted(self.index, self.name)

    def open_argument(self, key: str | None, kind: str) -> Iterator[ChatEvent]:
        """An argument's value follows."""
        if key is None or self._raw_given:
            self._kind = "ignored"
            return
        if key in self._keys:
            yield Malformed(f"call {self.name!r}: argument {key!r} is given twice")
        if kind != "string" and kind not in _KINDS:
            yield Malformed(f"call {self.name!r}: argument {key!r} has unknown type {kind!r}")
            kind = "string"
        start = ", " if self._keys else "{"
        self._keys.add(key)
        self._kind = kind
        quote = '"' if kind == "string" else ""
        yield self._more(f"{start}{_quoted(key)}: {quote}")

    def open_raw(self) -> None:
        """The call's whole JSON follows."""
        if self._keys or self._raw_given:
            self._kind = "ignored"
            return
        self._kind = "json"
        self._raw_given = True

    def push(self, text: str) -> Iterator[ChatEvent]:
        """Text of the value that is open."""
        match self._kind:
            case "string":
                yield self._more(_quoted(text)[1:-1])
            case "json":
                self._held.append(text)
                yield self._more(text)
            case _:
                self._held.append(text)

    def close_value(self) -> Iterator[ChatEvent]:
        """The open value is whole."""
        kind, self._kind = self._kind, None
        held = "".join(self._held)
        self._held.clear()
        match kind:
            case "string":
                yield self._more('"')
            case "ignored":
                yield Malformed(f"call {self.name!r}: a value without a place or a key", held)
            case "json":
                if not isinstance(_parsed(held), dict):
                    yield Malformed(f"call {self.name!r}: the raw block is not a JSON object")
            case str():
                value = _parsed(held)
                if value is _NOT_JSON:
                    yield Malformed(f"call {self.name!r}: a {kind} that is not JSON: {held!r}")
                    yield self._more(_quoted(held))
                    return
                if not _is_of_kind(value, kind):
                    yield Malformed(f"call {self.name!r}: not a {kind}: {held!r}")
                yield self._more(held.strip())

    def finish(self) -> Iterator[ChatEvent]:
        """The call is over, and so is its last value."""
        if not self._raw_given:
            yield self._more("}" if self._keys else "{}")
        yield CallFinished(self.index, complete=True)

    def cut(self) -> Iterator[ChatEvent]:
        """The answer stopped inside the call: its JSON stays as cut as it is."""
        if self._held and self._kind not in ("json", "ignored"):
            yield self._more("".join(self._held))
        yield CallFinished(self.index, complete=False)

    def _more(self, text: str) -> CallArguments:
        return CallArguments(self.index, text)


_NOT_JSON = object()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_of_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
