"""Text on its way out, with the tokens it is made of: both leave together, both are cut at a stop.

A token belongs to the text up to its first character, and goes out with that character; one that
begins where a stop begins, or after it, never goes out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from k3d.engine.request import TokenLogprob
from k3d.station.openai.stops import StopScanner


@dataclass(frozen=True)
class TextToken:
    """A token of the text, at the character where its own text begins."""

    token: int
    start: int
    logprob: TokenLogprob | None


@dataclass(frozen=True)
class Released:
    """Text that goes out, with the tokens that begin in it; `met` is the stop that ended it."""

    text: str = ""
    tokens: tuple[TextToken, ...] = ()
    met: str | None = None


class HeldText:
    """The text of one answer. Stop strings count from `min_tokens` tokens on."""

    def __init__(self, stops: tuple[str, ...], min_tokens: int = 0, start: int = 0) -> None:
        """`start` is where the text's first character stands in what the client gets."""
        self._scanner = StopScanner(stops)
        self._min_tokens = min_tokens
        self._seen = start
        self._out = start
        self._tokens: deque[TextToken] = deque()

    def push(
        self, text: str, count: int, token: int | None = None, logprob: TokenLogprob | None = None
    ) -> Released:
        """`text` that a token completed, as the answer's token number `count`. Without `token`
        the text has none of its own."""
        if token is not None:
            self._tokens.append(TextToken(token, self._seen, logprob))
        self._seen += len(text)
        if count < self._min_tokens:
            return self._release(text)
        scanned = self._scanner.push(text)
        if scanned.met is None:
            return self._release(scanned.text)
        out = self._release(scanned.text)
        self._tokens.clear()
        return Released(out.text, out.tokens, scanned.met)

    def finish(self) -> Released:
        """Everything that is left, where no stop can begin any more."""
        text = self._scanner.finish()
        self._out += len(text)
        tokens = tuple(self._tokens)
        self._tokens.clear()
        return Released(text, tokens)

    def _release(self, text: str) -> Released:
        self._out += len(text)
        tokens: list[TextToken] = []
        while self._tokens and self._tokens[0].start < self._out:
            tokens.append(self._tokens.popleft())
        return Released(text, tuple(tokens))
