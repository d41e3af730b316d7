"""The chat endpoint's request, and the lines it streams back.

| line | fields |
| --- | --- |
| token | id, or null for more text of the token before; text, whole characters, may be empty; |
|       | channel: response, reasoning or raw; where they were asked for, logprob and top, |
|       | pairs of id and log probability, best first |
| done  | finish_reason; usage {prompt_tokens, completion_tokens}; cached_tokens; rounds, drafted, |
|       | accepted, acceptance_length (null without rounds); |
|       | timing {queue_s, prompt_s, decode_s, tokens_per_s} |
| error | code, name, node, message, hint, retryable |

With synthetic acceptance every line has synthetic_acceptance, its mean length: no model wrote that.
"""

from __future__ import annotations

import uuid
from typing import Any, Protocol

import msgspec

from k3d.engine.request import (
    MOST_LOGPROBS,
    ErrorEvent,
    Event,
    FinishEvent,
    PromptEvent,
    Request,
    Sampling,
    TokenEvent,
)
from k3d.errors import CheckpointError, ConfigError, K3Error, Refused
from k3d.model.chat_events import Malformed, ReasoningText, ResponseText
from k3d.model.chat_format import ChatFormat, ChatOptions

DEFAULT_MAX_TOKENS = 256


class ChatRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of messages, prompt (raw text) and prompt_ids.

    draft_rows fixes the rows of a verification: 1 is plain decoding, None leaves it to the
    engine. Answers of one cache_salt share prefixes, of two never. Nothing ends an answer before
    min_tokens.
    """

    messages: list[dict[str, Any]] | None = None
    prompt: str | None = None
    prompt_ids: list[int] | None = None
    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    thinking: bool = False
    effort: str | None = None
    min_tokens: int = 0
    draft_rows: int | None = None
    logprobs: int | None = None
    cache_salt: str = ""


def read_request(body: bytes) -> ChatRequest:
    """Raises ConfigError naming the field that is wrong."""
    try:
        chat = msgspec.json.decode(body, type=ChatRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"the request cannot be read: {error}",
            hint="send one JSON object with messages, prompt or prompt_ids",
        ) from None
    given = [f for f in ("messages", "prompt", "prompt_ids") if getattr(chat, f) is not None]
    if len(given) != 1:
        raise ConfigError(
            f"the request has {' and '.join(given) or 'no prompt'}",
            hint="give exactly one of messages, prompt and prompt_ids",
        )
    if chat.messages == []:
        raise ConfigError("messages is empty", hint="give at least one message")
    return chat


def engine_request(chat: ChatRequest, chat_format: ChatFormat, room: int) -> Request:
    """Token ids and limits of a request; `room` is the context length.

    Raises ConfigError for a request that makes no sense or asks for what the model cannot do.
    """
    if chat.effort is not None and not (chat.thinking and chat.messages is not None):
        raise ConfigError(
            f"effort {chat.effort!r} is asked for without thinking",
            hint="set thinking, and give messages, or leave effort out",
        )
    if chat.logprobs is not None and not 0 <= chat.logprobs <= MOST_LOGPROBS:
        raise ConfigError(f"logprobs {chat.logprobs} is not between 0 and {MOST_LOGPROBS}")
    if chat.min_tokens < 0:
        raise ConfigError(f"min_tokens {chat.min_tokens} is negative")
    if chat.messages is not None:
        ids = _chat_ids(chat.messages, chat, chat_format)
    elif chat.prompt is not None:
        ids = chat_format.tokenizer.encode(chat.prompt)
    else:
        ids = chat.prompt_ids or []
    max_tokens = chat.max_tokens
    if max_tokens is None:
        most = max(DEFAULT_MAX_TOKENS, chat.min_tokens)
        max_tokens = max(1, min(most, room - len(ids)))
    return Request(
        id=uuid.uuid4().hex[:12],
        prompt=tuple(ids),
        max_tokens=max_tokens,
        sampling=Sampling(chat.temperature, chat.top_p, chat.top_k, chat.seed),
        stop_ids=frozenset((chat_format.stop_id,)),
        min_tokens=chat.min_tokens,
        logprobs=chat.logprobs,
        draft_rows=chat.draft_rows,
        cache_salt=chat.cache_salt,
        source="chat",
    )


def _chat_ids(
    messages: list[dict[str, Any]], chat: ChatRequest, chat_format: ChatFormat
) -> list[int]:
    effort = chat.effort or (chat_format.default_effort if chat.thinking else None)
    try:
        return chat_format.encode(messages, ChatOptions(thinking=chat.thinking, effort=effort))
    except (CheckpointError, Refused) as error:
        # An image, or words that the model's release does not have: the request is at fault here.
        raise ConfigError(error.message, hint=error.hint) from error


class _Decoder(Protocol):
    def push(self, token_id: int) -> list[tuple[str, str]]: ...

    def finish(self, stopped: bool) -> list[tuple[str, str]]:
        """What is left; `stopped` when the model ended its answer itself."""
        ...


class AnswerLines:
    """Turns a request's events into lines; text appears as soon as its characters are whole.

    `synthetic` is the length of made-up acceptance, which every line then says.
    """

    def __init__(
        self, chat: ChatRequest, chat_format: ChatFormat, synthetic: float | None = None
    ) -> None:
        self._stamp = {} if synthetic is None else {"synthetic_acceptance": synthetic}
        self._decoder: _Decoder = (
            _ChatDecoder(chat_format, chat.thinking)
            if chat.messages is not None
            else _RawDecoder(chat_format)
        )

    def lines(self, event: Event) -> list[dict[str, Any]]:
        """What one event adds to the stream."""
        try:
            lines = self._plain_lines(event)
        except K3Error as error:
            lines = [error.document()]
        return [{**line, **self._stamp} for line in lines]

    def _plain_lines(self, event: Event) -> list[dict[str, Any]]:
        if isinstance(event, TokenEvent):
            pieces = self._decoder.push(event.token) or [("", "raw")]
            lines = _token_lines(event.token, pieces)
            if event.logprob is not None:
                lines[0] |= {"logprob": event.logprob.logprob, "top": event.logprob.top}
            return lines
        if isinstance(event, PromptEvent):
            return []
        if isinstance(event, ErrorEvent):
            return [event.error.document()]
        last = self._decoder.finish(event.reason == "stop")
        return [*_token_lines(None, last), _done(event)]


def _token_lines(token: int | None, pieces: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Text that one token completed; only the first piece carries the token's id."""
    ids = (token, *[None] * len(pieces))
    return [
        {"type": "token", "id": token_id, "text": text, "channel": channel}
        for token_id, (text, channel) in zip(ids, pieces, strict=False)
    ]


class _RawDecoder:
    def __init__(self, chat_format: ChatFormat) -> None:
        self._stream = chat_format.tokenizer.stream_decoder()

    def push(self, token_id: int) -> list[tuple[str, str]]:
        return [(self._stream.push(token_id), "raw")]

    def finish(self, stopped: bool) -> list[tuple[str, str]]:
        del stopped
        rest = self._stream.finish()
        return [(rest, "raw")] if rest else []


class _ChatDecoder:
    def __init__(self, chat_format: ChatFormat, thinking: bool) -> None:
        self._stream = chat_format.stream(thinking=thinking)
        self._stop_id = chat_format.stop_id

    def push(self, token_id: int) -> list[tuple[str, str]]:
        return self._pieces(self._stream.push(token_id))

    def finish(self, stopped: bool) -> list[tuple[str, str]]:
        last = self._stream.push(self._stop_id) if stopped else []
        return self._pieces([*last, *self._stream.finish()])

    @staticmethod
    def _pieces(events: list[Any]) -> list[tuple[str, str]]:
        pieces = []
        for event in events:
            if isinstance(event, ResponseText):
                pieces.append((event.text, "response"))
            elif isinstance(event, ReasoningText):
                pieces.append((event.text, "reasoning"))
            elif isinstance(event, Malformed) and event.text:
                pieces.append((event.text, "raw"))
        return pieces


def _done(event: FinishEvent) -> dict[str, Any]:
    timing = event.timing
    decoded = timing.completion_tokens - 1  # the first token belongs to the prompt's pass
    speed = decoded / timing.decode_s if decoded > 0 and timing.decode_s > 0 else None
    return {
        "type": "done",
        "finish_reason": event.reason,
        "usage": {
            "prompt_tokens": timing.prompt_tokens,
            "completion_tokens": timing.completion_tokens,
        },
        "cached_tokens": timing.cached_tokens,
        "rounds": timing.rounds,
        "drafted": timing.drafted,
        "accepted": timing.accepted,
        "acceptance_length": round(1 + timing.accepted / timing.rounds, 3)
        if timing.rounds
        else None,
        "timing": {
            "queue_s": round(timing.queue_s, 6),
            "prompt_s": round(timing.prompt_s, 6),
            "decode_s": round(timing.decode_s, 6),
            "tokens_per_s": None if speed is None else round(speed, 2),
        },
    }
