"""A parser of Kimi-K3's answers, on token ids, as they are generated.

Only special ids are markers: text that merely spells one stays text. A model can write anything,
so nothing here raises on its output: what breaks the format is reported as an event, and parsing
goes on with the reading that loses least.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from k3d.model.chat_call import StreamedCall
from k3d.model.chat_events import (
    Answer,
    ChatEvent,
    Ended,
    Malformed,
    ReasoningText,
    ResponseText,
    join_events,
)
from k3d.model.chat_segments import CLOSE, END_OF_MESSAGE, OPEN, SEPARATOR, unescape_attribute
from k3d.model.tokenizer import Tokenizer

# The elements an answer may hold, with the elements each stands in.
_PLACE_OF: dict[str, tuple[str, ...]] = {
    "think": ("message",),
    "response": ("message",),
    "tools": ("message",),
    "call": ("message", "tools"),
    "argument": ("message", "tools", "call"),
    "json": ("message", "tools", "call"),
}

# A tag with its attributes is short. A longer one means that its end marker will not come.
_MAX_TAG_CHARACTERS = 4096

_TAG = re.compile(r'\s*(\w+)((?:\s+[^\s="]+="[^"]*")*)\s*')
_ATTRIBUTE = re.compile(r'([^\s="]+)="([^"]*)"')


class ChatStream:
    """Parses one answer, which continues a prompt that opened its message and its first channel.

    `push` every generated id, then `finish`. The events of both, joined by `join_events`, are the
    same however many ids a pass yields.
    """

    def __init__(self, tokenizer: Tokenizer, *, thinking: bool = True):
        """Raises CheckpointError when the tokenizer lacks one of the format's markers."""
        self._tokenizer = tokenizer
        self._open = tokenizer.special_id(OPEN.spelling)
        self._close = tokenizer.special_id(CLOSE.spelling)
        self._separator = tokenizer.special_id(SEPARATOR.spelling)
        self._end = tokenizer.special_id(END_OF_MESSAGE.spelling)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._path = ["message", "think" if thinking else "response"]
        """The open elements, outermost first."""
        self._marker: str | None = None
        """"open" or "close" while the tag that follows such a marker is read."""
        self._tag = ""
        self._call: StreamedCall | None = None
        self._calls = 0
        self._astray = False
        """Whether text outside any channel was already reported since the last tag."""
        self.ended = False
        """Whether the end marker came; ids after it are reported and ignored."""

    @property
    def channel(self) -> Literal["reasoning", "response"] | None:
        """What text of the next id would be; None in a tag, a call or beside the channels."""
        if self._marker is not None:
            return None
        match self._path:
            case ["message", "think"]:
                return "reasoning"
            case ["message", "response"]:
                return "response"
        return None

    def push(self, token_id: int) -> list[ChatEvent]:
        """What one generated id adds, often nothing. Never raises on any id."""
        return list(self._push(token_id))

    def finish(self) -> list[ChatEvent]:
        """The last events, when no id will follow. After an end marker there are none."""
        return [] if self.ended else list(self._stop_early())

    def _push(self, token_id: int) -> Iterator[ChatEvent]:
        if self.ended:
            yield Malformed(f"token {token_id} after the end of the answer")
        elif token_id < self._tokenizer.first_special_id and token_id >= 0:
            yield from self._text(self._utf8.decode(self._tokenizer.token_bytes(token_id)))
        else:
            yield from self._text(self._flushed())
            yield from self._special(token_id)

    def _special(self, token_id: int) -> Iterator[ChatEvent]:
        if token_id == self._separator:
            yield from self._end_tag()
            return
        yield from self._abandon_tag()
        if token_id == self._open:
            self._marker = "open"
        elif token_id == self._close:
            self._marker = "close"
        elif token_id == self._end:
            yield from self._end_answer()
        else:
            spelling = self._tokenizer.special_spelling(token_id) or str(token_id)
            yield Malformed(f"token {spelling} has no place in an answer")

    def _text(self, text: str) -> Iterator[ChatEvent]:
        if not text:
            return
        if self._marker is not None:
            self._tag += text
            if len(self._tag) > _MAX_TAG_CHARACTERS:
                yield from self._abandon_tag()
            return
        match self._path:
            case ["message", "think"]:
                yield ReasoningText(text)
            case ["message", "response"]:
                yield ResponseText(text)
            case ["message", "tools", "call", _] if self._call is not None:
                yield from self._call.push(text)
            case ["message"]:
                yield from self._stray_response(text)
            case _:
                yield from self._stray(text)

    def _stray_response(self, text: str) -> Iterator[ChatEvent]:
        """Text beside the channels is most likely an answer whose channel was not opened."""
        if self._astray:
            yield ResponseText(text)
        elif not text.isspace():
            self._astray = True
            yield Malformed("text outside any channel, taken for response")
            yield ResponseText(text)

    def _stray(self, text: str) -> Iterator[ChatEvent]:
        if not text.isspace():
            where = f"inside {self._path[-1]!r}" if self._path else "after the message"
            yield Malformed(f"text {where}, which has none", text)

    def _end_tag(self) -> Iterator[ChatEvent]:
        marker, tag = self._marker, self._tag
        self._marker, self._tag, self._astray = None, "", False
        if marker is None:
            yield Malformed("a separator without a tag")
            return
        match = _TAG.fullmatch(tag)
        if match is None:
            yield Malformed("a tag that cannot be read", tag)
            return
        name = match[1]
        if marker == "close":
            yield from self._close_element(name)
        else:
            attributes = {
                key: unescape_attribute(value) for key, value in _ATTRIBUTE.findall(match[2])
            }
            yield from self._open_element(name, attributes)

    def _abandon_tag(self) -> Iterator[ChatEvent]:
        if self._marker is not None:
            yield Malformed(f"a tag to {self._marker} that never ended", self._tag)
            self._marker, self._tag = None, ""

    def _open_element(self, name: str, attributes: dict[str, str]) -> Iterator[ChatEvent]:
        place = _PLACE_OF.get(name)
        # An argument cannot be given a call that the model did not open; a call can its tools.
        if place is None or not self._path or (place[-1] == "call" and "call" not in self._path):
            yield Malformed(f"{name!r} opened where it has no place")
            return
        while tuple(self._path) != place[: len(self._path)]:
            yield Malformed(f"{name!r} opened inside {self._path[-1]!r}")
            yield from self._leave()
        if tuple(self._path) != place:
            yield Malformed(f"{name!r} opened outside {place[-1]!r}")
            self._path.append(place[-1])
        self._path.append(name)
        yield from self._enter(name, attributes)

    def _enter(self, name: str, attributes: dict[str, str]) -> Iterator[ChatEvent]:
        if name == "call":
            tool = attributes.get("tool")
            if not tool:
                yield Malformed("a call without the name of its tool")
                return
            self._call = StreamedCall(self._calls, tool)
            self._calls += 1
            yield from self._call.start()
        elif self._call is not None and name == "argument":
            yield from self._call.open_argument(
                attributes.get("key"), attributes.get("type", "string")
            )
        elif self._call is not None and name == "json":
            self._call.open_raw()

    def _close_element(self, name: str) -> Iterator[ChatEvent]:
        if name not in self._path:
            yield Malformed(f"{name!r} closed, but not open")
            return
        while self._path[-1] != name:
            yield Malformed(f"{name!r} closed while {self._path[-1]!r} is open")
            yield from self._leave()
        yield from self._leave()

    def _leave(self) -> Iterator[ChatEvent]:
        """The innermost element is over."""
        name = self._path.pop()
        if self._call is None:
            return
        if name in ("argument", "json"):
            yield from self._call.close_value()
        elif name == "call":
            yield from self._call.finish()
            self._call = None

    def _end_answer(self) -> Iterator[ChatEvent]:
        while self._path:
            yield Malformed(f"the answer ended while {self._path[-1]!r} is open")
            yield from self._leave()
        self.ended = True
        yield Ended(complete=True)

    def _stop_early(self) -> Iterator[ChatEvent]:
        yield from self._text(self._flushed())
        if self._call is not None:
            yield from self._call.cut()
            self._call = None
        self.ended = True
        yield Ended(complete=False)

    def _flushed(self) -> str:
        """U+FFFD when a marker or the end comes inside a character, else nothing."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


def parse_answer(tokenizer: Tokenizer, ids: Iterable[int], *, thinking: bool = True) -> Answer:
    """A whole answer at once. Raises CheckpointError as `ChatStream` does."""
    stream = ChatStream(tokenizer, thinking=thinking)
    events = [event for token_id in ids for event in stream.push(token_id)]
    return join_events(events + stream.finish())
