"""The bodies of responses and of events in a stream. What the specification wants is always there,
null when there is nothing; what goes beyond it is left out when it was not asked for.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: int = 0


class CompletionTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class SpeculativeDecoding(msgspec.Struct, frozen=True, kw_only=True):
    """What verification kept; a rate is null where nothing was drafted."""

    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    speculative_decoding: SpeculativeDecoding


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob, frozen=True, kw_only=True):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    content: list[TokenLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Of /v1/completions: lists with an entry a token; the first prompt token has nulls."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class Function(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """Whole in a message; in pieces, with an index, in a stream."""

    function: Function
    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class Message(msgspec.Struct, frozen=True, kw_only=True):
    content: str | None
    role: str = "assistant"
    refusal: None = None
    annotations: list[str] = []
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What every choice has; stop_reason is the stop string or token id that was met."""

    index: int
    finish_reason: str | None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChatChoice(Choice, frozen=True, kw_only=True):
    message: Message
    logprobs: ChatLogprobs | None


class ChatChunkChoice(Choice, frozen=True, kw_only=True):
    delta: ChatDelta
    logprobs: ChatLogprobs | None


class TextChoice(Choice, frozen=True, kw_only=True):
    text: str
    logprobs: TextLogprobs | None


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What a response and every chunk of a stream share, constant over the stream."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    metrics: Metrics | UnsetType = UNSET
    k3_synthetic_acceptance: float | UnsetType = UNSET
    """Set where the Station accepts drafts by a made-up rate: the text is then worthless."""


class ChatCompletion(Envelope, frozen=True, kw_only=True):
    choices: list[ChatChoice]
    usage: Usage
    object: str = "chat.completion"


class ChatCompletionChunk(Envelope, frozen=True, kw_only=True):
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    object: str = "chat.completion.chunk"


class Completion(Envelope, frozen=True, kw_only=True):
    """A whole completion, and a chunk of one: the specification has one shape for both."""

    choices: list[TextChoice]
    usage: Usage | UnsetType | None = UNSET
    object: str = "text_completion"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created: int
    max_model_len: int
    object: str = "model"
    owned_by: str = "k3pod"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    data: list[Model]
    object: str = "list"


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorDetail
