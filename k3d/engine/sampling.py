"""Choosing a token. A draw depends on (seed, position) alone, so it can be drawn again: by a
verification of several rows, or by a lane that was preempted and starts over."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

import torch
from torch import Tensor

from k3d.engine.request import Request, Sampling, TokenLogprob


def uniform(seed: int, position: int) -> float:
    """The draw in [0, 1) of one position, 53 bits of blake2b."""
    message = struct.pack("<qq", seed, position)
    (bits,) = struct.unpack("<Q", hashlib.blake2b(message, digest_size=8).digest())
    return (bits >> 11) * 2.0**-53


def choose(logits: Tensor, sampling: Sampling, position: int) -> int:
    """Token for `position` from logits f64 [vocab]; ties go to the lower id."""
    if sampling.temperature == 0.0:
        return int((logits == logits.max()).nonzero()[0])
    below = (logits - logits.max()) / sampling.temperature  # at most 0, however cold
    ordered, ids = torch.sort(below, descending=True, stable=True)
    if sampling.top_k:
        ordered = ordered[: sampling.top_k]
    shares = torch.exp(ordered)
    if sampling.min_p:
        shares = shares[shares >= sampling.min_p]  # the largest is 1
    mass = torch.cumsum(shares, 0)
    kept = len(mass)
    if sampling.top_p < 1.0:
        kept = int((mass < sampling.top_p * mass[-1]).sum()) + 1  # up to the one that reaches it
    drawn = uniform(sampling.seed, position) * float(mass[kept - 1])
    return int(ids[min(int((mass <= drawn).sum()), kept - 1)])


def logprobs_of(logits: Tensor, token: int, top: int) -> TokenLogprob:
    """Log probability of `token` and of the `top` likeliest, from logits f64 [vocab]; ties go to
    the lower id."""
    logs = torch.log_softmax(logits, 0)
    best: tuple[tuple[int, float], ...] = ()
    if top:
        values, ids = torch.sort(logs, descending=True, stable=True)
        best = tuple(zip(ids[:top].tolist(), values[:top].tolist(), strict=True))
    return TokenLogprob(token, float(logs[token]), best)


class Rules:
    """What a request's logits go through before a token is chosen. It follows the tokens written,
    so row i of a verification is judged after the drafts before it, as in plain decoding."""

    def __init__(self, request: Request, vocab: int) -> None:
        sampling = request.sampling
        self._request = request
        self._written = 0
        self._bias = _bias(sampling, vocab)
        self._counts: Tensor | None = None
        if sampling.presence_penalty or sampling.frequency_penalty:
            self._counts = torch.zeros(vocab, dtype=torch.float64)
        self._seen: Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            self._seen = torch.zeros(vocab, dtype=torch.bool)
            self._seen[torch.tensor(request.prompt)] = True

    @property
    def plain(self) -> bool:
        """Whether greedy choice needs nothing but the largest logit."""
        return (
            self._bias is None
            and self._counts is None
            and self._seen is None
            and self._request.constraint is None
            and self._written >= self._request.min_tokens
        )

    def apply(self, logits: Tensor) -> Tensor:
        """Logits f64 [vocab] of the next token; the argument stays as it is."""
        request, sampling = self._request, self._request.sampling
        if self.plain:
            return logits
        out = logits.clone()
        if self._seen is not None:
            factor = sampling.repetition_penalty
            damped = torch.where(out > 0, out / factor, out * factor)
            out = torch.where(self._seen, damped, out)
        if self._counts is not None:
            out -= sampling.frequency_penalty * self._counts
            out -= sampling.presence_penalty * (self._counts > 0)
        if self._bias is not None:
            out += self._bias
        forbidden = torch.zeros(len(out), dtype=torch.bool)
        if request.constraint is not None:
            forbidden = ~request.constraint.allowed()
        elif self._written < request.min_tokens:
            forbidden[list(request.stop_ids)] = True
        return out.masked_fill(forbidden, float("-inf"))

    def write(self, token: int) -> None:
        """A token was chosen and is no stop."""
        self._written += 1
        if self._counts is not None:
            self._counts[token] += 1
        if self._seen is not None:
            self._seen[token] = True
        if self._request.constraint is not None:
            self._request.constraint.advance(token)

    def legal(self, drafts: Iterable[int]) -> int:
        """How many leading drafts a constraint allows."""
        constraint = self._request.constraint
        drafts = list(drafts)
        if constraint is None:
            return len(drafts)
        taken = 0
        while taken < len(drafts) and constraint.advance(drafts[taken]):
            taken += 1
        if taken:
            constraint.take_back(taken)
        return taken


def _bias(sampling: Sampling, vocab: int) -> Tensor | None:
    if not sampling.logit_bias:
        return None
    bias = torch.zeros(vocab, dtype=torch.float64)
    for token, value in sampling.logit_bias:
        bias[token] += value
    return bias
