"""POST /v1/completions: one or several prompts, as text or as ids, echoed and scored if asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from k3d.model.tokenizer import Tokenizer
from k3d.station.openai import responses
from k3d.station.openai.answers import Delta
from k3d.station.openai.envelope import new_envelope
from k3d.station.openai.errors import bad_value
from k3d.station.openai.exchange import Exchange, speculation
from k3d.station.openai.json_body import read_object
from k3d.station.openai.limits import MOST_CHOICES
from k3d.station.openai.logprobs import text_logprobs
from k3d.station.openai.reading import (
    check_token_ids,
    engine_requests,
    max_tokens,
    read_wishes,
)
from k3d.station.openai.requests import CompletionRequest, convert
from k3d.station.openai.running import Part
from k3d.station.openai.served import Served
from k3d.station.openai.text_answer import TextAnswer

# What the specification says where max_tokens is missing; a prompt near the end has less room.
_DEFAULT_MAX_TOKENS = 16


def read_completion_exchange(body: bytes | bytearray, served: Served) -> Exchange:
    """Everything up to the engine. Raises ApiError; slow for large bodies."""
    request, unknown = convert(read_object(body), CompletionRequest)
    wishes = read_wishes(request, served, request.logprobs)
    if request.best_of is not None and request.best_of != wishes.n:
        raise bad_value("best_of", "it is not served; ask for n and choose", code="unsupported")
    if request.suffix:
        raise bad_value("suffix", "the model does not fill in text", code="unsupported")
    prompts = _prompts(request.prompt, served)
    if len(prompts) * wishes.n > MOST_CHOICES:
        raise bad_value("prompt", f"{len(prompts)} prompts, n {wishes.n}: {MOST_CHOICES} at most")
    envelope = new_envelope("cmpl", served)
    echo, specials = bool(request.echo), request.skip_special_tokens is False
    parts: list[Part] = []
    for prompt in prompts:
        asked = request.max_tokens
        if asked is None:
            asked = max(1, min(_DEFAULT_MAX_TOKENS, served.room - len(prompt)))
        least = 0 if echo else 1
        most = max_tokens(asked, len(prompt), served, least=least, param="max_tokens")
        requests = engine_requests(
            wishes,
            envelope["id"],
            prompt,
            most,
            served,
            first_index=len(parts),
            prompt_logprobs=most == 0 or (echo and wishes.logprobs is not None),
            cache_salt=request.cache_salt,
            source="v1/completions",
        )
        for each in requests:
            answer = TextAnswer(served.chat.tokenizer, wishes, prompt, echo=echo, specials=specials)
            parts.append(Part(len(parts), each, answer))
    spelling = TextSpelling(
        envelope,
        served.chat.tokenizer,
        logprobs=wishes.logprobs is not None,
        ids=bool(request.return_token_ids),
        metrics=bool(request.include_metrics),
    )
    return Exchange(wishes, parts, spelling, unknown)


def _prompts(given: str | list[str | int | list[int]], served: Served) -> list[tuple[int, ...]]:
    """Ids of every prompt. Raises ApiError for an empty one and for kinds that are mixed."""
    if isinstance(given, str):
        given = [given]
    kinds = {type(each) for each in given}
    if not given or len(kinds) != 1:
        what = "is empty" if not given else "mixes text and token ids"
        raise bad_value("prompt", f"it {what}; give text, ids, or a list of either")
    if kinds == {int}:
        given = [given]  # type: ignore[list-item]
    if len(given) > MOST_CHOICES:
        raise bad_value("prompt", f"{len(given)} prompts; at most {MOST_CHOICES} are allowed")
    prompts: list[tuple[int, ...]] = []
    for each in given:
        if isinstance(each, str):
            ids = served.chat.tokenizer.encode(each)
        else:
            assert isinstance(each, list)
            check_token_ids(each, served, "prompt")
            ids = each
        if not ids:
            raise bad_value("prompt", "a prompt holds no token")
        prompts.append(tuple(ids))
    return prompts


@dataclass(frozen=True)
class TextSpelling:
    """Implements Spelling for plain text."""

    envelope: dict[str, Any]
    tokenizer: Tokenizer
    logprobs: bool
    ids: bool
    metrics: bool

    def first(self, parts: Sequence[Part]) -> list[msgspec.Struct]:
        return []

    def chunk(self, part: Part, delta: Delta) -> msgspec.Struct:
        return self._completion([self._choice(part, delta, bool(delta.tokens))])

    def last(self, part: Part, delta: Delta) -> msgspec.Struct:
        return self._completion([self._choice(part, delta, False, finish=True)])

    def totals(self, usage: responses.Usage, parts: Sequence[Part]) -> msgspec.Struct:
        return self._completion([], usage, self._metrics(parts))

    def whole(
        self, parts: Sequence[Part], deltas: Sequence[Delta], usage: responses.Usage
    ) -> msgspec.Struct:
        choices = [
            self._choice(part, delta, True, finish=True)
            for part, delta in zip(parts, deltas, strict=True)
        ]
        return self._completion(choices, usage, self._metrics(parts))

    def _completion(
        self,
        choices: list[responses.TextChoice],
        usage: responses.Usage | msgspec.UnsetType = UNSET,
        metrics: responses.Metrics | msgspec.UnsetType = UNSET,
    ) -> responses.Completion:
        return responses.Completion(**self.envelope, choices=choices, usage=usage, metrics=metrics)

    def _choice(
        self, part: Part, delta: Delta, scored: bool, *, finish: bool = False
    ) -> responses.TextChoice:
        logprobs = None
        if self.logprobs and scored:
            logprobs = text_logprobs(self.tokenizer, delta.tokens)
        return responses.TextChoice(
            index=part.index,
            text=delta.text,
            finish_reason=part.answer.finish_reason if finish else None,
            stop_reason=part.answer.stop_reason if finish else None,
            logprobs=logprobs,
            token_ids=list(delta.ids) if self.ids else UNSET,
            prompt_token_ids=list(part.request.prompt) if self.ids and finish else UNSET,
        )

    def _metrics(self, parts: Sequence[Part]) -> responses.Metrics | msgspec.UnsetType:
        return speculation(parts) if self.metrics else UNSET
