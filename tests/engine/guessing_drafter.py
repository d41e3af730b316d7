"""A drafter that knows the answers and is wrong on purpose: drafts whose quality is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from k3d.model.drafter.proposal import Proposal
from k3d.model.row_pages import PAGE_ROWS
from k3d.model.taps import Taps

Continue = Callable[[int, int], int]
"""(token, its position) -> the token that follows."""


class GuessingDrafter:
    """Its context rows hold the token that follows each row, so that it can check what it gets."""

    block = 7
    row_width = 2
    config: Any = None

    def __init__(
        self, follow: Continue, right: float, seed: int, vocab: int, layers: tuple[int, ...] = (0,)
    ) -> None:
        self.taps = Taps(layers, "raw_prefix")
        self.asked = 0
        self._follow = follow
        self._right = right
        self._random = random.Random(seed)
        self._vocab = vocab
        self.contexts: list[tuple[int, list[int]]] = []

    def context_rows(self, taps: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        assert taps.shape[0] == len(positions) == len(tokens)
        return torch.stack((positions.float(), tokens.float()), -1)

    def propose(
        self,
        contexts: Sequence[Tensor],
        anchors: Sequence[int],
        positions: Sequence[int],
        counts: Sequence[int],
        context_starts: Sequence[int] | None = None,
    ) -> list[Proposal]:
        self.asked += 1
        proposals = []
        for context, anchor, position, count in zip(
            contexts, anchors, positions, counts, strict=True
        ):
            assert context[:, 0].tolist() == list(range(position)), "a row for every position"
            if position % PAGE_ROWS:  # else the row may be of a prefix that went on otherwise
                assert int(context[-1, 1]) == anchor
            drafts, token = [], anchor
            for k in range(count):
                token = self._follow(token, position + k)
                if self._random.random() > self._right:
                    token = self._random.randrange(self._vocab)
                drafts.append(token)
            proposals.append(Proposal(tuple(drafts), (self._right,) * count))
        return proposals
