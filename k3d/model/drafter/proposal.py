"""What the engine sees of a drafter, whichever kind it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from k3d.model.drafter.config import DrafterConfig
from k3d.model.taps import Taps


@dataclass(frozen=True)
class Proposal:
    """Drafts of one lane, and for each the chance that it is accepted if those before it were."""

    tokens: tuple[int, ...]
    confidence: tuple[float, ...]


NOTHING = Proposal((), ())


class Drafter(Protocol):
    """A drafter keeps no state of a sequence: what it knows is in the context rows."""

    @property
    def config(self) -> DrafterConfig:
        """What its file says it is."""
        ...

    @property
    def block(self) -> int:
        """The most drafts of a proposal."""
        ...

    @property
    def taps(self) -> Taps:
        """The hidden rows of the model it reads."""
        ...

    @property
    def row_width(self) -> int:
        """Float32 values of a context row."""
        ...

    def context_rows(self, taps: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """What to keep of committed rows: f32 [rows, row_width].

        taps [rows, taps * hidden] in the model's dtype; positions i64 [rows]; tokens i64 [rows],
        the token that follows each row. A row depends on its own inputs alone.
        """
        ...

    def propose(
        self,
        contexts: Sequence[Tensor],
        anchors: Sequence[int],
        positions: Sequence[int],
        counts: Sequence[int],
        context_starts: Sequence[int] | None = None,
    ) -> list[Proposal]:
        """At most counts[i] drafts after anchors[i], the token at positions[i], for every lane.

        contexts[i] f32 [>= positions[i], row_width] holds the row of position j at j; those
        before context_starts[i] (0 if not given) and from positions[i] on are not read. A drafter
        that computes what is not a number proposes fewer drafts.
        """
        ...


def written(
    contexts: Sequence[Tensor], positions: Sequence[int], starts: Sequence[int] | None
) -> list[Tensor]:
    """The rows of each context that hold something. Raises ValueError if rows are missing."""
    rows = []
    for lane, (context, position) in enumerate(zip(contexts, positions, strict=True)):
        if context.shape[0] < position:
            raise ValueError(f"lane {lane} is at {position} with {context.shape[0]} context rows")
        start = starts[lane] if starts is not None else 0
        rows.append(context[min(start, position) : position])
    return rows


Draft = Callable[[list[Tensor], Tensor, Tensor, list[int]], list[Proposal]]
"""(context rows, anchors i64, positions i64, counts above 0) of some lanes -> their drafts."""


def propose_with(
    draft: Draft,
    block: int,
    contexts: Sequence[Tensor],
    anchors: Sequence[int],
    positions: Sequence[int],
    counts: Sequence[int],
    context_starts: Sequence[int] | None,
    *,
    least_rows: int = 0,
) -> list[Proposal]:
    """Drafter.propose by a `draft` of the lanes that want drafts and have `least_rows` context
    rows; the others get none."""
    rows = written(contexts, positions, context_starts)
    wanted = [min(count, block) for count in counts]
    lanes = [i for i, count in enumerate(wanted) if count > 0 and rows[i].shape[0] >= least_rows]
    proposals = [NOTHING] * len(wanted)
    if lanes:
        drafted = draft(
            [rows[lane] for lane in lanes],
            torch.tensor([anchors[lane] for lane in lanes]),
            torch.tensor([positions[lane] for lane in lanes]),
            [wanted[lane] for lane in lanes],
        )
        for lane, proposal in zip(lanes, drafted, strict=True):
            proposals[lane] = proposal
    return proposals


def trimmed(
    tokens: Tensor, scores: Tensor, confidence: Tensor, counts: Sequence[int]
) -> list[Proposal]:
    """Proposals from [lanes, steps] each, cut at the count and at the first draft whose score or
    confidence is not a finite number."""
    sound = (torch.isfinite(scores) & torch.isfinite(confidence)).tolist()
    proposals = []
    for lane, (ids, chances) in enumerate(zip(tokens.tolist(), confidence.tolist(), strict=True)):
        usable = sound[lane].index(False) if False in sound[lane] else len(ids)
        end = min(usable, counts[lane])
        proposals.append(Proposal(tuple(ids[:end]), tuple(chances[:end])))
    return proposals
