"""An answer of the chat format: channels told apart, stop strings cut, calls in pieces."""

from __future__ import annotations

from collections.abc import Iterable

from k3d.engine.request import FinishEvent, PromptEvent, Timing, TokenEvent
from k3d.model.chat_events import (
    CallArguments,
    CallFinished,
    CallStarted,
    ChatEvent,
    Malformed,
    ReasoningText,
    ResponseText,
)
from k3d.model.chat_format import ChatFormat
from k3d.station.openai.answers import CallPiece, Delta
from k3d.station.openai.held_text import HeldText, Released, TextToken
from k3d.station.openai.reading import Wishes


class ChatAnswer:
    """Implements Answer. With ignore_eos, what follows the message's end is text too."""

    def __init__(self, chat: ChatFormat, wishes: Wishes, *, thinking: bool) -> None:
        self._stop_id = chat.stop_id
        self._stop_ids = wishes.stop_ids
        self._first_special = chat.tokenizer.first_special_id
        self._stream = chat.stream(thinking=thinking)
        self._held = HeldText(wishes.stops, wishes.min_tokens)
        self._stray_is_text = wishes.ignore_eos
        self._complete_calls = 0
        self.malformed = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self.timing: Timing | None = None

    def prompt(self, event: PromptEvent) -> None:
        """A conversation is not echoed."""

    def token(self, event: TokenEvent) -> Delta:
        if self.finish_reason is not None:
            return Delta()
        self.completion_tokens += 1
        channel = self._stream.channel
        ordinary = 0 <= event.token < self._first_special
        if ordinary and channel == "reasoning":
            self.reasoning_tokens += 1
        delta = _Growing((event.token,))
        own = event if ordinary and channel == "response" else None
        self._grow(delta, self._stream.push(event.token), own)
        if not ordinary and self.finish_reason is None:
            delta.release(self._held.finish())  # a marker: no stop string reaches across it
        return delta.whole()

    def finish(self, event: FinishEvent) -> Delta:
        self.timing = event.timing
        if self.finish_reason is not None:
            return Delta()
        ended = event.reason == "stop" and event.stop_id in (None, self._stop_id)
        last = self._stream.push(self._stop_id) if ended else []
        delta = _Growing(())
        self._grow(delta, [*last, *self._stream.finish()], None)
        if self.finish_reason is None:
            delta.release(self._held.finish())
            self.finish_reason = "length"
            if event.reason == "stop":
                self.finish_reason = "tool_calls" if self._complete_calls else "stop"
                self.stop_reason = event.stop_id if event.stop_id in self._stop_ids else None
        return delta.whole()

    def _grow(self, delta: _Growing, events: Iterable[ChatEvent], own: TokenEvent | None) -> None:
        """Add `events` to `delta`; `own` is the token whose text they begin with."""
        for event in events:
            match event:
                case ResponseText(text):
                    own = self._push(delta, text, own)
                case Malformed():
                    self.malformed += 1
                    if event.text and self._stray_is_text:
                        self._push(delta, event.text, None)
                case ReasoningText(text):
                    delta.reasoning += text
                case CallStarted(index, name):
                    delta.calls.append(CallPiece(index, name))
                case CallArguments(index, text):
                    delta.calls.append(CallPiece(index, None, text))
                case CallFinished(_, complete=True):
                    self._complete_calls += 1
            if self.finish_reason is not None:
                return
        if own is not None:
            self._push(delta, "", own)  # bytes of a character that is not whole yet

    def _push(self, delta: _Growing, text: str, own: TokenEvent | None) -> None:
        released = self._held.push(
            text,
            self.completion_tokens,
            None if own is None else own.token,
            None if own is None else own.logprob,
        )
        delta.release(released)
        if released.met is not None:
            self.finish_reason, self.stop_reason = "stop", released.met


class _Growing:
    """A delta that is being put together."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.text = ""
        self.reasoning = ""
        self.calls: list[CallPiece] = []
        self._tokens: list[TextToken] = []
        self._ids = ids

    def release(self, released: Released) -> None:
        self.text += released.text
        self._tokens += released.tokens

    def whole(self) -> Delta:
        return Delta(self.text, self.reasoning, tuple(self.calls), tuple(self._tokens), self._ids)
