"""Log probabilities in the two shapes of the API."""

from __future__ import annotations

from collections.abc import Iterable

from k3d.model.tokenizer import Tokenizer
from k3d.station.openai import responses
from k3d.station.openai.held_text import TextToken

# JSON has no infinity; this is what OpenAI's API says for the impossible.
_IMPOSSIBLE = -9999.0


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[TextToken]) -> responses.ChatLogprobs:
    """An entry a token; top_logprobs has as many as were asked for."""
    content: list[responses.TokenLogprob] = []
    for each in tokens:
        if each.logprob is None:
            continue
        top = [_top(tokenizer, token, value) for token, value in each.logprob.top]
        own = _top(tokenizer, each.token, each.logprob.logprob)
        content.append(
            responses.TokenLogprob(
                token=own.token, logprob=own.logprob, bytes=own.bytes, top_logprobs=top
            )
        )
    return responses.ChatLogprobs(content=content)


def text_logprobs(tokenizer: Tokenizer, tokens: Iterable[TextToken]) -> responses.TextLogprobs:
    """An entry a token; the token itself is always among its top_logprobs."""
    offsets: list[int] = []
    values: list[float | None] = []
    names: list[str] = []
    tops: list[dict[str, float] | None] = []
    for each in tokens:
        offsets.append(each.start)
        names.append(text_of(tokenizer, each.token))
        logprob = each.logprob
        values.append(None if logprob is None else _finite(logprob.logprob))
        if logprob is None:
            tops.append(None)
            continue
        top = {text_of(tokenizer, token): _finite(value) for token, value in logprob.top}
        top.setdefault(names[-1], _finite(logprob.logprob))
        tops.append(top)
    return responses.TextLogprobs(
        text_offset=offsets, token_logprobs=values, tokens=names, top_logprobs=tops
    )


def text_of(tokenizer: Tokenizer, token: int) -> str:
    """A token's text, told apart from every other's: bytes that are no text are spelled out."""
    raw = tokenizer.token_bytes(token)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _top(tokenizer: Tokenizer, token: int, value: float) -> responses.TopLogprob:
    raw = tokenizer.token_bytes(token)
    return responses.TopLogprob(
        token=raw.decode("utf-8", errors="replace"), logprob=_finite(value), bytes=list(raw)
    )


def _finite(value: float) -> float:
    return max(value, _IMPOSSIBLE)
