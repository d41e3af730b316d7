"""Values of the fields that both kinds of completion share, checked and made the engine's."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from k3d.engine.request import MOST_LOGPROBS, Constraint, Request, Sampling
from k3d.station.openai.errors import ApiError, bad_value
from k3d.station.openai.limits import (
    MOST_BIASES,
    MOST_N,
    MOST_STOP_CHARACTERS,
    MOST_STOP_IDS,
    MOST_STOPS,
)
from k3d.station.openai.requests import CommonRequest
from k3d.station.openai.served import Served

# The largest bias there is; it makes a token impossible in all but name.
_NEVER = -100.0
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True)
class Wishes:
    """What a request wants of each of its answers, its prompt aside."""

    sampling: Sampling
    n: int
    stops: tuple[str, ...]
    stop_ids: frozenset[int]
    min_tokens: int
    ignore_eos: bool
    stream: bool
    usage_chunk: bool
    usage_always: bool
    logprobs: int | None
    """Alternatives with each token; None for no log probabilities at all."""


def read_wishes(request: CommonRequest, served: Served, logprobs: int | None) -> Wishes:
    """Raises ApiError naming the field."""
    if request.model != served.model:
        raise ApiError(
            f"the model {request.model[:100]!r} does not exist here; this Station serves "
            f"{served.model!r}",
            status=404,
            param="model",
            code="model_not_found",
        )
    if request.stream_options is not None and not request.stream:
        raise bad_value("stream_options", "it is of use only with stream: true")
    n = 1 if request.n is None else request.n
    if not 1 <= n <= MOST_N:
        raise bad_value("n", f"{_digits(n)} is not between 1 and {MOST_N}")
    if logprobs is not None and not 0 <= logprobs <= MOST_LOGPROBS:
        raise bad_value("logprobs", f"{_digits(logprobs)} is not between 0 and {MOST_LOGPROBS}")
    options = request.stream_options
    return Wishes(
        sampling=_sampling(request, served),
        n=n,
        stops=_stops(request.stop),
        stop_ids=_stop_ids(request.stop_token_ids, served),
        min_tokens=_min_tokens(request.min_tokens),
        ignore_eos=bool(request.ignore_eos),
        stream=bool(request.stream),
        usage_chunk=bool(options and options.include_usage),
        usage_always=bool(options and options.include_usage and options.continuous_usage_stats),
        logprobs=logprobs,
    )


def max_tokens(asked: int | None, prompt: int, served: Served, *, least: int, param: str) -> int:
    """Tokens an answer may have after `prompt` tokens; what is left where nobody asked."""
    if asked is not None and asked < least:
        raise bad_value(param, f"{_digits(asked)} is below {least}")
    if asked is not None and asked >= 2**31:
        raise bad_value(
            param,
            f"This model's maximum context length is {served.room} tokens",
            code="context_length_exceeded",
        )
    wanted = max(1, served.room - prompt) if asked is None else asked
    if prompt + wanted > served.room:
        raise ApiError(
            f"This model's maximum context length is {served.room} tokens. However, you requested "
            f"{prompt + wanted} tokens ({prompt} in the messages, {wanted} in the completion). "
            "Please reduce the length of the messages or completion.",
            param="messages" if prompt >= served.room else param,
            code="context_length_exceeded",
        )
    return wanted


def engine_requests(
    wishes: Wishes,
    response_id: str,
    prompt: tuple[int, ...],
    most: int,
    served: Served,
    *,
    first_index: int = 0,
    constraints: Sequence[Constraint] | None = None,
    prompt_logprobs: bool = False,
    cache_salt: str | None = None,
    source: str = "",
) -> list[Request]:
    """A request of the engine for each of the n answers to one prompt.

    Raises ApiError when min_tokens exceeds `most`.
    """
    if wishes.min_tokens > most:
        raise bad_value("min_tokens", f"{_digits(wishes.min_tokens)} exceeds max_tokens, {most}")
    eos = served.chat.stop_id
    stop_ids, min_tokens, sampling = wishes.stop_ids | {eos}, wishes.min_tokens, wishes.sampling
    if wishes.ignore_eos and not constraints:
        if wishes.stop_ids:
            stop_ids -= {eos}
            sampling = replace(sampling, logit_bias=(*sampling.logit_bias, (eos, _NEVER)))
        else:
            min_tokens = most
    return [
        Request(
            id=f"{response_id}-{first_index + at}",
            prompt=prompt,
            max_tokens=most,
            sampling=replace(sampling, seed=_nth_seed(sampling.seed, at)),
            stop_ids=frozenset(stop_ids),
            min_tokens=min_tokens,
            logprobs=0 if prompt_logprobs and wishes.logprobs is None else wishes.logprobs,
            prompt_logprobs=prompt_logprobs,
            constraint=constraints[at] if constraints else None,
            cache_salt=cache_salt or "",
            source=source,
        )
        for at in range(wishes.n)
    ]


def check_token_ids(ids: list[int], served: Served, param: str) -> None:
    """Raises ApiError for an id that no token has."""
    known = served.token_ids
    bad = next((each for each in ids if not 0 <= each < known), None)
    if bad is not None:
        raise bad_value(param, f"there is no token {_digits(bad)}; ids are 0 to {known - 1}")


def _sampling(request: CommonRequest, served: Served) -> Sampling:
    temperature = _number(request.temperature, "temperature", 0.0, 2.0, missing=1.0)
    top_p = 1.0 if request.top_p is None else request.top_p
    if not 0.0 < top_p <= 1.0:
        raise bad_value("top_p", f"{top_p} is not above 0 and at most 1")
    top_k = 0 if request.top_k is None else request.top_k
    if not -1 <= top_k < 2**31:
        raise bad_value("top_k", f"{_digits(top_k)} is not -1, 0 or a number of tokens")
    repetition = 1.0 if request.repetition_penalty is None else request.repetition_penalty
    if not 0.0 < repetition <= 10.0:
        raise bad_value("repetition_penalty", f"{repetition} is not above 0 and at most 10")
    seed = secrets.randbits(63) if request.seed is None else request.seed
    if not -(2**63) <= seed < 2**63:
        raise bad_value("seed", f"{_digits(seed)} does not fit 64 bits")
    return Sampling(
        temperature=temperature,
        top_p=top_p,
        top_k=max(0, top_k),
        seed=seed,
        min_p=_number(request.min_p, "min_p", 0.0, 1.0, missing=0.0),
        presence_penalty=_number(request.presence_penalty, "presence_penalty", -2.0, 2.0),
        frequency_penalty=_number(request.frequency_penalty, "frequency_penalty", -2.0, 2.0),
        repetition_penalty=repetition,
        logit_bias=_logit_bias(request.logit_bias, served),
    )


def _number(
    value: float | None, param: str, least: float, most: float, *, missing: float = 0.0
) -> float:
    value = missing if value is None else value
    if not least <= value <= most:
        raise bad_value(param, f"{value} is not between {least:g} and {most:g}")
    return value


def _logit_bias(biases: dict[str, float] | None, served: Served) -> tuple[tuple[int, float], ...]:
    if not biases:
        return ()
    if len(biases) > MOST_BIASES:
        raise bad_value("logit_bias", f"{len(biases)} entries; at most {MOST_BIASES} are allowed")
    read: list[tuple[int, float]] = []
    for spelled, bias in biases.items():
        if not _TOKEN_ID.fullmatch(spelled):
            raise bad_value("logit_bias", f"{spelled[:40]!r} is not a token id")
        check_token_ids([int(spelled)], served, "logit_bias")
        if not -100.0 <= bias <= 100.0:
            raise bad_value("logit_bias", f"{bias} of token {spelled} is not between -100 and 100")
        read.append((int(spelled), bias))
    return tuple(read)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if len(stops) > MOST_STOPS:
        raise bad_value("stop", f"{len(stops)} strings; at most {MOST_STOPS} are allowed")
    for each in stops:
        if not each:
            raise bad_value("stop", "a stop string is empty")
        if len(each) > MOST_STOP_CHARACTERS:
            raise bad_value(
                "stop", f"a stop string has more than {MOST_STOP_CHARACTERS} characters"
            )
    return tuple(stops)


def _stop_ids(ids: list[int] | None, served: Served) -> frozenset[int]:
    if ids is None:
        return frozenset()
    if len(ids) > MOST_STOP_IDS:
        raise bad_value("stop_token_ids", f"{len(ids)} ids; at most {MOST_STOP_IDS} are allowed")
    check_token_ids(ids, served, "stop_token_ids")
    return frozenset(ids)


def _min_tokens(least: int | None) -> int:
    if least is not None and least < 0:
        raise bad_value("min_tokens", f"{_digits(least)} is negative")
    return least or 0


def _nth_seed(seed: int, at: int) -> int:
    """`seed` + `at`, within 64 bits."""
    return (seed + at + 2**63) % 2**64 - 2**63


def _digits(number: int) -> str:
    """A number for a sentence, however long it is."""
    return str(number) if abs(number) < 10**20 else "that large"
