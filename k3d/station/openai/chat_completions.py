"""POST /v1/chat/completions: the request read, its answers spelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from k3d.model.tokenizer import Tokenizer
from k3d.station.openai import responses
from k3d.station.openai.answers import CallPiece, Delta
from k3d.station.openai.chat_answer import ChatAnswer
from k3d.station.openai.chat_reading import read_chat
from k3d.station.openai.envelope import new_envelope
from k3d.station.openai.errors import bad_value
from k3d.station.openai.exchange import Exchange, speculation
from k3d.station.openai.grammar import Grammars
from k3d.station.openai.json_body import read_object
from k3d.station.openai.logprobs import chat_logprobs
from k3d.station.openai.reading import engine_requests, max_tokens, read_wishes
from k3d.station.openai.requests import ChatCompletionRequest, convert
from k3d.station.openai.running import Part
from k3d.station.openai.served import Served


def read_chat_exchange(body: bytes | bytearray, served: Served, grammars: Grammars) -> Exchange:
    """Everything up to the engine. Raises ApiError; slow for large bodies."""
    request, unknown = convert(read_object(body), ChatCompletionRequest)
    wishes = read_wishes(request, served, _logprobs(request))
    chat = read_chat(request, served, grammars)
    param = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    most = max_tokens(getattr(request, param), len(chat.prompt), served, least=1, param=param)
    envelope = new_envelope("chatcmpl", served)
    constraints = None
    if chat.constraint is not None:
        constraints = [chat.constraint, *(chat.constraint.copy() for _ in range(wishes.n - 1))]
    asked = engine_requests(
        wishes,
        envelope["id"],
        chat.prompt,
        most,
        served,
        constraints=constraints,
        cache_salt=request.cache_salt,
        source="v1/chat/completions",
    )
    parts = [
        Part(at, each, ChatAnswer(served.chat, wishes, thinking=chat.thinking))
        for at, each in enumerate(asked)
    ]
    spelling = ChatSpelling(
        envelope,
        served.chat.tokenizer,
        logprobs=wishes.logprobs is not None,
        thinking=chat.thinking,
        ids=bool(request.return_token_ids),
        metrics=bool(request.include_metrics),
    )
    return Exchange(wishes, parts, spelling, unknown)


def _logprobs(request: ChatCompletionRequest) -> int | None:
    if request.top_logprobs is not None and not request.logprobs:
        raise bad_value("top_logprobs", "it is of use only with logprobs: true")
    return (request.top_logprobs or 0) if request.logprobs else None


@dataclass(frozen=True)
class ChatSpelling:
    """Implements Spelling for conversations."""

    envelope: dict[str, Any]
    tokenizer: Tokenizer
    logprobs: bool
    thinking: bool
    ids: bool
    metrics: bool

    def first(self, parts: Sequence[Part]) -> list[msgspec.Struct]:
        delta = responses.ChatDelta(role="assistant", content="")
        return [
            self._chunk(part, delta, prompt_token_ids=self._ids(part.request.prompt))
            for part in parts
        ]

    def chunk(self, part: Part, delta: Delta) -> msgspec.Struct:
        spelled = responses.ChatDelta(
            content=delta.text or UNSET,
            reasoning=delta.reasoning or UNSET,
            reasoning_content=delta.reasoning or UNSET,
            tool_calls=[self._call_piece(part, piece) for piece in delta.calls] or UNSET,
        )
        return self._chunk(part, spelled, delta)

    def last(self, part: Part, delta: Delta) -> msgspec.Struct:
        return self._chunk(part, responses.ChatDelta(), delta, finish=True)

    def totals(self, usage: responses.Usage, parts: Sequence[Part]) -> msgspec.Struct:
        return responses.ChatCompletionChunk(
            **self.envelope, choices=[], usage=usage, metrics=self._metrics(parts)
        )

    def whole(
        self, parts: Sequence[Part], deltas: Sequence[Delta], usage: responses.Usage
    ) -> msgspec.Struct:
        choices = [self._choice(part, delta) for part, delta in zip(parts, deltas, strict=True)]
        return responses.ChatCompletion(
            **self.envelope, choices=choices, usage=usage, metrics=self._metrics(parts)
        )

    def _choice(self, part: Part, delta: Delta) -> responses.ChatChoice:
        calls = [
            responses.ToolCall(
                id=self._call_id(part, piece),
                type="function",
                function=responses.Function(name=piece.name or "", arguments=piece.arguments),
            )
            for piece in _whole_calls(delta.calls)
        ]
        reasoning = delta.reasoning if self.thinking else UNSET
        message = responses.Message(
            content=None if calls and not delta.text else delta.text,
            reasoning=reasoning,
            reasoning_content=reasoning,
            tool_calls=calls or UNSET,
        )
        return responses.ChatChoice(
            index=part.index,
            message=message,
            finish_reason=part.answer.finish_reason,
            stop_reason=part.answer.stop_reason,
            logprobs=chat_logprobs(self.tokenizer, delta.tokens) if self.logprobs else None,
            token_ids=self._ids(delta.ids),
            prompt_token_ids=self._ids(part.request.prompt),
        )

    def _chunk(
        self,
        part: Part,
        spelled: responses.ChatDelta,
        delta: Delta | None = None,
        *,
        finish: bool = False,
        prompt_token_ids: list[int] | msgspec.UnsetType = UNSET,
    ) -> responses.ChatCompletionChunk:
        logprobs = None
        if self.logprobs and delta is not None and delta.tokens:
            logprobs = chat_logprobs(self.tokenizer, delta.tokens)
        choice = responses.ChatChunkChoice(
            index=part.index,
            delta=spelled,
            finish_reason=part.answer.finish_reason if finish else None,
            stop_reason=part.answer.stop_reason if finish else None,
            logprobs=logprobs,
            token_ids=UNSET if delta is None else self._ids(delta.ids),
            prompt_token_ids=prompt_token_ids,
        )
        return responses.ChatCompletionChunk(**self.envelope, choices=[choice])

    def _call_piece(self, part: Part, piece: CallPiece) -> responses.ToolCall:
        if piece.name is None:
            function = responses.Function(arguments=piece.arguments)
            return responses.ToolCall(index=piece.index, function=function)
        function = responses.Function(name=piece.name, arguments=piece.arguments)
        return responses.ToolCall(
            index=piece.index, id=self._call_id(part, piece), type="function", function=function
        )

    def _call_id(self, part: Part, piece: CallPiece) -> str:
        """The model gives its calls no ids; these are unique and the same in both modes."""
        stem = self.envelope["id"].removeprefix("chatcmpl-")
        return f"call_{stem}_{part.index}_{piece.index}"

    def _ids(self, ids: Sequence[int]) -> list[int] | msgspec.UnsetType:
        return list(ids) if self.ids else UNSET

    def _metrics(self, parts: Sequence[Part]) -> responses.Metrics | msgspec.UnsetType:
        return speculation(parts) if self.metrics else UNSET


def _whole_calls(pieces: Sequence[CallPiece]) -> list[CallPiece]:
    """Calls of an answer that is over, each whole."""
    calls: dict[int, CallPiece] = {}
    for piece in pieces:
        before = calls.get(piece.index, CallPiece(piece.index))
        calls[piece.index] = CallPiece(
            piece.index, before.name or piece.name, before.arguments + piece.arguments
        )
    return list(calls.values())
