"""Grammars that an answer must follow, token by token, by llguidance."""

from __future__ import annotations

import numpy as np
import tiktoken
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from llguidance.tiktoken import lltokenizer_from_encoding
from torch import Tensor

from k3d.errors import ConfigError
from k3d.model.tokenizer import PIECE_PATTERN, Tokenizer

# A grammar is compiled before its request is admitted. These bound the compiling to a fraction of
# a second and a token's step to some ten milliseconds; what exceeds them is refused, or fails.
_FUEL = 500_000
_STEP_FUEL = 200_000
_STEP_ITEMS = 50_000
_STATES = 100_000
_SYMBOLS = 100_000
_LONGEST_COMPLAINT = 300


class Grammars:
    """Compiles grammars for one tokenizer. Slow to make, and safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_id: int) -> None:
        """`vocab_size` is the width of the logits; `stop_id` may come once the grammar is over."""
        self._vocab_size = vocab_size
        self._stop_id = stop_id
        self._tokenizer = _of_llguidance(tokenizer, vocab_size, stop_id)

    def compile(self, lark: str) -> GrammarConstraint:
        """A constraint at the grammar's beginning. Raises ConfigError for a grammar that cannot be
        followed."""
        matcher = LLMatcher(self._tokenizer, lark, log_level=0, limits=_limits())
        if matcher.is_error():
            raise ConfigError(_complaint(matcher))
        most = self._tokenizer.vocab_size
        constraint = GrammarConstraint(matcher, most, self._vocab_size, self._stop_id)
        constraint.allowed()
        if constraint.failed is not None:
            raise ConfigError(constraint.failed)
        if matcher.is_stopped():
            raise ConfigError("nothing fits it")
        return constraint


class GrammarConstraint:
    """Implements k3d.engine.request.Constraint. One thread at a time."""

    def __init__(self, matcher: LLMatcher, most: int, vocab_size: int, stop_id: int) -> None:
        """`most` ids are known to the matcher."""
        self._matcher = matcher
        self._most = most
        self._vocab_size = vocab_size
        self._stop_id = stop_id
        self._after = 0
        """Stop tokens taken after the end, which the matcher does not count."""
        self.failed: str | None = None
        """Why the grammar could not be followed to its end. Then only the stop token is allowed:
        an error would end the pass, and with it the answers of others."""
        self._bits = allocate_token_bitmask(1, most)
        self._allowed: Tensor | None = None

    def copy(self) -> GrammarConstraint:
        """The same grammar in the same state, for another answer."""
        copied = GrammarConstraint(
            self._matcher.deep_copy(), self._most, self._vocab_size, self._stop_id
        )
        copied._after = self._after
        return copied

    def allowed(self) -> Tensor:
        """bool [vocab]; the stop token alone at the end, and after a failure."""
        if self._allowed is None:
            self._allowed = self._compute()
        return self._allowed

    def advance(self, token: int) -> bool:
        if self.failed is not None or self._matcher.is_stopped():
            if token != self._stop_id:
                return False
            self._after += 1
            return True
        if self._matcher.try_consume_tokens([token]) != 1:
            return False
        self._allowed = None
        return True

    def take_back(self, count: int) -> None:
        after = min(count, self._after)
        self._after -= after
        if count > after:
            if not self._matcher.rollback(count - after):
                self._fail(_complaint(self._matcher))
            self._allowed = None

    def _compute(self) -> Tensor:
        if self.failed is None and not self._matcher.is_stopped():
            fill_next_token_bitmask(self._matcher, self._bits)
        if self._matcher.is_error():
            self._fail(_complaint(self._matcher))
        if self.failed is not None or self._matcher.is_stopped():
            return self._only_stop()
        bits = np.unpackbits(self._bits.view(np.uint8)[0], bitorder="little")
        allowed = bits[: self._vocab_size].astype(bool)
        if not allowed.any():
            self._fail("it allows no token here")
            return self._only_stop()
        return torch.from_numpy(allowed)

    def _only_stop(self) -> Tensor:
        allowed = torch.zeros(self._vocab_size, dtype=torch.bool)
        allowed[self._stop_id] = True
        return allowed

    def _fail(self, complaint: str) -> None:
        self.failed = self.failed or complaint
        self._allowed = None


def _of_llguidance(tokenizer: Tokenizer, vocab_size: int, stop_id: int) -> LLTokenizer:
    ranks = {tokenizer.token_bytes(token): token for token in range(tokenizer.first_special_id)}
    encoding = tiktoken.Encoding(
        name="k3",
        pat_str=PIECE_PATTERN,
        mergeable_ranks=ranks,
        special_tokens=dict(tokenizer.specials),
    )
    # A model may have logits for fewer ids than the tokenizer knows, or for more.
    most = max(vocab_size, tokenizer.vocab_size)
    return lltokenizer_from_encoding(encoding, n_vocab=most, eos_token=stop_id)


def _complaint(matcher: LLMatcher) -> str:
    """What the matcher says, in one line."""
    lines = [line.strip() for line in matcher.get_error().splitlines()]
    return next((line for line in lines if line), "unknown error")[:_LONGEST_COMPLAINT]


def _limits() -> LLParserLimits:
    return LLParserLimits(
        initial_lexer_fuel=_FUEL,
        step_lexer_fuel=_STEP_FUEL,
        step_max_items=_STEP_ITEMS,
        max_lexer_states=_STATES,
        max_grammar_size=_SYMBOLS,
        verbose_errors=False,
    )
