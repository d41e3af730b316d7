"""The bodies of requests: fields and their types. Values and what they must be to each other are
`reading`'s business. Fields of the specification that change nothing here are typed and ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from k3d.station.openai.errors import ApiError

T = TypeVar("T", bound="CommonRequest")
Short = Annotated[str, msgspec.Meta(max_length=1024)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class CommonRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds of completion take."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    # Beyond the specification, as other servers name them.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    cache_salt: Short | None = None
    include_metrics: bool | None = None


class ChatCompletionRequest(CommonRequest, frozen=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: list[str] | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    # Typed and ignored.
    audio: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    moderation: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    verbosity: str | None = None
    web_search_options: dict[str, Any] | None = None


class CompletionRequest(CommonRequest, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: int | None = None
    best_of: int | None = None
    suffix: str | None = None


def convert(values: dict[str, Any], kind: type[T]) -> tuple[T, int]:
    """The request, and how many of its fields nobody knows. Raises ApiError naming the field."""
    try:
        request = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        complaint, _, where = str(error).partition(" - at `")
        param = where.rstrip("`").removeprefix("$").removeprefix(".") or None
        if param is None and "required field" in complaint:
            param = complaint.partition("`")[2].partition("`")[0]
        sentence = complaint.replace("Object missing required field", "the request has no field")
        raise ApiError(f"{param}: {sentence}" if where else sentence, param=param) from None
    known = frozenset(kind.__struct_encode_fields__)
    return request, sum(1 for key in values if key not in known)
