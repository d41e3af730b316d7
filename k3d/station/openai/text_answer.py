"""An answer of plain text, with its prompt before it where that is echoed."""

from __future__ import annotations

from k3d.engine.request import FinishEvent, PromptEvent, Timing, TokenEvent, TokenLogprob
from k3d.model.tokenizer import StreamDecoder, Tokenizer
from k3d.station.openai.answers import Delta, delta_of, join
from k3d.station.openai.held_text import HeldText, Released, TextToken
from k3d.station.openai.reading import Wishes


class TextAnswer:
    """Implements Answer. Special tokens have no text, or with `specials` their spelling."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        wishes: Wishes,
        prompt: tuple[int, ...],
        *,
        echo: bool = False,
        specials: bool = False,
    ) -> None:
        self._text = _TokenText(tokenizer, specials, prompt)
        self._stop_ids = wishes.stop_ids
        self._prompt_logprobs: dict[int, TokenLogprob] = {}
        self._echo: Delta | None = None
        if echo:
            self._echo = echoed(tokenizer, prompt, specials=specials)
        start = len(self._echo.text) if self._echo else 0
        self._held = HeldText(wishes.stops, wishes.min_tokens, start)
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self.timing: Timing | None = None

    def prompt(self, event: PromptEvent) -> None:
        for at, logprob in enumerate(event.logprobs):
            self._prompt_logprobs[event.start + at] = logprob

    def token(self, event: TokenEvent) -> Delta:
        if self.finish_reason is not None:
            return Delta()
        self.completion_tokens += 1
        text = self._text.push(event.token)
        released = self._held.push(text, self.completion_tokens, event.token, event.logprob)
        self._meet(released)
        return self._after_echo(delta_of(released, ids=(event.token,)))

    def finish(self, event: FinishEvent) -> Delta:
        self.timing = event.timing
        if self.finish_reason is not None:
            return Delta()
        last = self._held.push(self._text.finish(), self.completion_tokens)
        self._meet(last)
        if self.finish_reason is None:
            rest = self._held.finish()
            last = Released(last.text + rest.text, last.tokens + rest.tokens)
            self.finish_reason = "length" if event.reason == "length" else "stop"
            self.stop_reason = event.stop_id if event.stop_id in self._stop_ids else None
        return self._after_echo(delta_of(last))

    def _meet(self, released: Released) -> None:
        if released.met is not None:
            self.finish_reason, self.stop_reason = "stop", released.met

    def _after_echo(self, delta: Delta) -> Delta:
        """`delta`, behind the prompt if that was not given yet."""
        if self._echo is None:
            return delta
        echo, self._echo = self._echo, None
        tokens = tuple(
            TextToken(each.token, each.start, self._prompt_logprobs.get(at))
            for at, each in enumerate(echo.tokens)
        )
        return join((Delta(text=echo.text, tokens=tokens), delta))


def echoed(tokenizer: Tokenizer, prompt: tuple[int, ...], *, specials: bool) -> Delta:
    """A prompt as text, with every token at the place where it begins."""
    text = _TokenText(tokenizer, specials)
    pieces: list[str] = []
    tokens: list[TextToken] = []
    length = 0
    for token in prompt:
        tokens.append(TextToken(token, length, None))
        pieces.append(text.push(token))
        length += len(pieces[-1])
    return Delta(text="".join([*pieces, text.finish()]), tokens=tuple(tokens))


class _TokenText:
    """Text of tokens in order, whole characters only."""

    def __init__(self, tokenizer: Tokenizer, specials: bool, after: tuple[int, ...] = ()) -> None:
        self._decoder: StreamDecoder = tokenizer.stream_decoder(after)
        self._first_special = tokenizer.first_special_id
        self._specials = specials

    def push(self, token: int) -> str:
        if token >= self._first_special and not self._specials:
            return self._decoder.finish()
        return self._decoder.push(token)

    def finish(self) -> str:
        return self._decoder.finish()
