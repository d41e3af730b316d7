"""From logits to tokens: what a pass's rows say of one sequence.

Every token is the one plain decoding would have chosen: the target's own choice at its position,
drawn with that position's key, behind the tokens chosen before it. A draft only decides whether
the next row may be used, so any rule for how many rows to verify is right.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass

import torch
from torch import Tensor

from k3d.engine.request import TokenLogprob
from k3d.engine.sampling import choose, logprobs_of
from k3d.engine.sequence import Sequence


@dataclass(frozen=True)
class Verdict:
    """tokens: what the sequence writes, in order; rows: how many rows of the pass they use (one
    each, a stop token's row too); stop_id: the stop token that ended it, which is not among them.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    rows: int
    stop_id: int | None


def judge(
    sequence: Sequence, logits: Tensor, drafts: Ordered[int], forced: int | None = None
) -> Verdict:
    """logits f64 [1 + drafts, vocab]: after the anchor, after each draft.

    `forced` accepts that many drafts unchecked: synthetic acceptance, for benchmarks only.
    """
    request, rules = sequence.request, sequence.rules
    greedy = _greedy(logits) if request.sampling.temperature == 0.0 else None
    tokens: list[int] = []
    logprobs: list[TokenLogprob] = []
    for row in range(len(drafts) + 1):
        if forced is not None and row < min(forced, len(drafts)):
            token = drafts[row]
        elif greedy is not None and rules.plain:
            token = greedy[row]
        else:
            position = len(sequence.tokens) + row
            token = choose(rules.apply(logits[row]), request.sampling, position)
        if token in request.stop_ids:
            return Verdict(tuple(tokens), tuple(logprobs), row + 1, token)
        tokens.append(token)
        rules.write(token)
        if request.logprobs is not None:
            logprobs.append(logprobs_of(logits[row], token, request.logprobs))
        if len(tokens) == sequence.room or row == len(drafts) or token != drafts[row]:
            break
    return Verdict(tuple(tokens), tuple(logprobs), len(tokens), None)


def _greedy(logits: Tensor) -> list[int]:
    """The largest logit of every row; ties go to the lower id."""
    ids = torch.arange(logits.shape[-1])
    largest = logits == logits.amax(-1, keepdim=True)
    return torch.where(largest, ids, logits.shape[-1]).amin(-1).tolist()
