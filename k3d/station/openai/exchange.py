"""One HTTP request for completions: what the engine is asked, and how its answers are spelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from k3d.engine.request import Timing
from k3d.station.openai import responses
from k3d.station.openai.answers import Delta, join
from k3d.station.openai.reading import Wishes
from k3d.station.openai.running import Growth, Part


class Spelling(Protocol):
    """How one kind of completion looks on the wire."""

    def first(self, parts: Sequence[Part]) -> list[msgspec.Struct]:
        """Chunks before anything was written."""
        ...

    def chunk(self, part: Part, delta: Delta) -> msgspec.Struct:
        """A chunk of one choice."""
        ...

    def last(self, part: Part, delta: Delta) -> msgspec.Struct:
        """The chunk with the finish_reason; `delta` holds no more than ids."""
        ...

    def totals(self, usage: responses.Usage, parts: Sequence[Part]) -> msgspec.Struct:
        """The chunk without choices."""
        ...

    def whole(
        self, parts: Sequence[Part], deltas: Sequence[Delta], usage: responses.Usage
    ) -> msgspec.Struct:
        """The response that is not streamed; deltas[i] is all of parts[i]."""
        ...


@dataclass
class Exchange:
    """`parts` are the choices in order; those of one prompt stand together, n of them."""

    wishes: Wishes
    parts: Sequence[Part]
    spelling: Spelling
    unknown_fields: int = 0
    _pending: dict[int, list[Delta]] = field(default_factory=dict, init=False)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each once."""
        return sum(len(part.request.prompt) for part in self.parts[:: self.wishes.n])

    def usage(self) -> responses.Usage:
        """What was counted so far; cached tokens are known once a request is over."""
        prompt = self.prompt_tokens
        written = sum(part.answer.completion_tokens for part in self.parts)
        cached = sum(
            part.answer.timing.cached_tokens
            for part in self.parts[:: self.wishes.n]
            if part.answer.timing is not None
        )
        return responses.Usage(
            prompt_tokens=prompt,
            completion_tokens=written,
            total_tokens=prompt + written,
            prompt_tokens_details=responses.PromptTokensDetails(cached_tokens=cached),
            completion_tokens_details=responses.CompletionTokensDetails(
                reasoning_tokens=sum(part.answer.reasoning_tokens for part in self.parts)
            ),
        )

    def chunks(self, growth: Growth) -> list[msgspec.Struct]:
        """Chunks for what one choice grew by. What shows nothing waits for what does."""
        part = growth.part
        waiting = self._pending.setdefault(part.index, [])
        waiting.append(growth.delta)
        delta = join(waiting)
        chunks: list[msgspec.Struct] = []
        if delta.shown:
            chunks.append(self.spelling.chunk(part, delta))
            delta = Delta()
        self._pending[part.index] = [delta]
        if growth.ended:
            chunks.append(self.spelling.last(part, delta))
            self._pending[part.index] = []
        return [self.with_usage(chunk) for chunk in chunks]

    def with_usage(self, chunk: msgspec.Struct) -> msgspec.Struct:
        """The chunk with what it says of usage: nothing, null, or the counts so far."""
        if not self.wishes.usage_chunk:
            return chunk
        usage = self.usage() if self.wishes.usage_always else None
        return msgspec.structs.replace(chunk, usage=usage)


def speculation(parts: Sequence[Part]) -> responses.Metrics:
    """What verification kept, over all choices."""
    timings = [part.answer.timing for part in parts if part.answer.timing is not None]
    return responses.Metrics(speculative_decoding=_speculative(timings))


def _speculative(timings: Sequence[Timing]) -> responses.SpeculativeDecoding:
    rounds = sum(timing.rounds for timing in timings)
    drafted = sum(timing.drafted for timing in timings)
    accepted = sum(timing.accepted for timing in timings)
    return responses.SpeculativeDecoding(
        mean_acceptance_length=(accepted + rounds) / rounds if rounds else None,
        draft_acceptance_rate=accepted / drafted if drafted else None,
        num_spec_steps=rounds,
        num_draft_tokens=drafted,
        num_accepted_draft_tokens=accepted,
    )
