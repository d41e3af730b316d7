"""What the next pass holds: the rows of every lane that decodes, and one chunk of one prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from k3d.engine.drafting import NONE, Draft, Drafting
from k3d.engine.lanes import Lanes
from k3d.engine.sequence import Sequence
from k3d.model.kimi_k3 import Span


@dataclass(frozen=True)
class Part:
    """A sequence's rows in a pass: an anchor with its draft, or a chunk of a prompt."""

    sequence: Sequence
    span: Span
    draft: Draft | None

    @property
    def rows(self) -> int:
        return len(self.span.tokens)

    @property
    def wanted(self) -> range:
        """Rows whose logits are needed."""
        request = self.sequence.request
        if self.draft is not None or (request.prompt_logprobs and not self.sequence.written):
            return range(self.rows)
        ends = self.rows == self.sequence.behind
        return range(self.rows - 1, self.rows) if ends else range(0)


class PassPlanner:
    """Prompts take turns; lanes that decode are in every pass."""

    def __init__(
        self, lanes: Lanes, drafting: Drafting, max_rows: int, chunk: int, shared_chunk: int
    ) -> None:
        self._lanes = lanes
        self._drafting = drafting
        self._max_rows = max_rows
        self._chunk_rows = chunk
        self._shared_rows = min(chunk, shared_chunk)
        self._last_prompt = 0  # arrival of the sequence whose chunk ran last

    def plan(self) -> list[Part]:
        """Parts with pages for all their rows; empty when nothing can run."""
        lanes = self._lanes
        for sequence in [each for each in lanes.running if each.behind == 1]:
            if sequence in lanes.running:  # it may have given way to one before it
                lanes.reserve(sequence, sequence.position + 1)
        decoding = self._decoding()
        room = self._max_rows - len(decoding)
        chunk = self._chunk(min(room, self._shared_rows if decoding else self._chunk_rows))
        decoding = self._decoding()
        taken = chunk.rows if chunk is not None else 0
        drafts = self._drafts(decoding, self._max_rows - len(decoding) - taken, taken)
        parts = [
            self._round(sequence, draft) for sequence, draft in zip(decoding, drafts, strict=True)
        ]
        return [*parts, chunk] if chunk is not None else parts

    def _decoding(self) -> list[Sequence]:
        return [each for each in self._lanes.running if each.behind == 1][: self._max_rows]

    def _round(self, sequence: Sequence, draft: Draft) -> Part:
        assert sequence.lane is not None
        tokens = (sequence.tokens[-1], *draft.tokens)
        every = self._lanes.memory.snapshot_every
        return Part(sequence, Span(sequence.lane, tokens, ahead=True, snapshot_every=every), draft)

    def _chunk(self, most: int) -> Part | None:
        behind = [each for each in self._lanes.running if each.behind > 1]
        if not behind or most < 1:
            return None
        sequence = next((s for s in behind if s.arrival > self._last_prompt), behind[0])
        start = sequence.position
        rows = min(sequence.behind, most)
        if not self._lanes.reserve(sequence, start + rows):
            return None
        assert sequence.lane is not None
        self._last_prompt = sequence.arrival
        tokens = sequence.tokens[start : start + rows]
        every = self._lanes.memory.snapshot_every
        # An equal prompt must find a state that leaves it one token to run.
        until = len(sequence.tokens) - 1
        return Part(sequence, Span(sequence.lane, tokens, False, every, until), None)

    def _drafts(self, decoding: list[Sequence], left: int, other_rows: int) -> list[Draft]:
        """Drafts for lanes that have room for them: in the answer, in the pass, in memory."""
        drafter = self._drafting.drafter
        if not decoding or drafter is None:
            return [NONE] * len(decoding)
        room = []
        for sequence in decoding:
            assert sequence.lane is not None
            most = max(0, min(drafter.block, sequence.room - 1, left // len(decoding)))
            if most and not sequence.lane.reserve(sequence.position + 1 + most):
                most = max(0, sequence.lane.capacity - sequence.position - 1)
            room.append(most)
        with torch.inference_mode():
            return self._drafting.drafts(decoding, room, other_rows)
