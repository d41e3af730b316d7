"""Drafts of all lanes: asked of the drafter, cut to what pays, fed with what was committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from k3d.engine.choose_rows import choose_drafts, pays
from k3d.engine.cost_curve import CostCurve
from k3d.engine.sequence import Sequence
from k3d.engine.synthetic import SyntheticAcceptance
from k3d.engine.trust import common_bias
from k3d.model.drafter.proposal import Drafter
from k3d.model.taps import Taps


@dataclass(frozen=True)
class Draft:
    """What one lane verifies; `confidence` is the drafter's, as long as its proposal."""

    tokens: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    asked: bool = False


NONE = Draft()


class Drafting:
    """Drafts for the rounds of an engine; without a drafter every round is plain."""

    def __init__(
        self,
        drafter: Drafter | None,
        curve: CostCurve,
        clock: Callable[[], float],
        synthetic: SyntheticAcceptance | None = None,
    ) -> None:
        self.drafter = drafter
        self.synthetic = synthetic
        self.spent_s = 0.0
        self.bias = common_bias()
        self._curve = curve
        self._clock = clock

    @property
    def taps(self) -> Taps | None:
        return self.drafter.taps if self.drafter is not None else None

    def drafts(self, lanes: list[Sequence], room: list[int], other_rows: int) -> list[Draft]:
        """A draft for each decoding lane of a round; at most room[i] tokens for lane i."""
        if self.drafter is None:
            return [NONE] * len(lanes)
        counts = [min(self._wanted(lane), most) for lane, most in zip(lanes, room, strict=True)]
        asking = [index for index, count in enumerate(counts) if count]
        drafts = [NONE] * len(lanes)
        if not asking:
            return drafts
        for index, draft in zip(asking, self._ask(lanes, counts, asking), strict=True):
            drafts[index] = draft
        self._cut(lanes, drafts, other_rows)
        return drafts

    def learn(self, lane: Sequence, draft: Draft, accepted: int) -> None:
        """A round's outcome, for the lanes that choose for themselves."""
        if self.drafter is None or not self._chooses(lane):
            return
        if draft.asked:
            lane.trust.learn(draft.confidence, len(draft.tokens), accepted)
        else:
            lane.trust.rest_a_round()

    def feed(self, rows: list[tuple[Sequence, int, Tensor]]) -> None:
        """Context rows of committed rows: (lane, first position, taps [rows, taps * hidden]).
        The lanes' tokens already hold what follows their last committed row."""
        if self.drafter is None or not rows:
            return
        positions, tokens = [], []
        for lane, start, taps in rows:
            stop = start + taps.shape[0]
            positions.append(torch.arange(start, stop))
            after = lane.tokens[start + 1 : stop + 1]
            tokens += after + [lane.tokens[-1]] * (stop - start - len(after))
        made = self.drafter.context_rows(
            torch.cat([taps for _, _, taps in rows]), torch.cat(positions), torch.tensor(tokens)
        )
        for (lane, start, _), part in zip(
            rows, made.split([taps.shape[0] for _, _, taps in rows]), strict=True
        ):
            assert lane.lane is not None
            lane.lane.write_drafts(start, part)

    def _chooses(self, lane: Sequence) -> bool:
        return lane.request.draft_rows is None and self.synthetic is None

    def _wanted(self, lane: Sequence) -> int:
        """Drafts to ask for."""
        assert self.drafter is not None
        fixed = lane.request.draft_rows
        if fixed is not None:
            return min(self.drafter.block, fixed - 1)
        if self.synthetic is not None:
            return min(self.drafter.block, self.synthetic.drafts)
        return self.drafter.block if lane.trust.asks else 0

    def _ask(self, lanes: list[Sequence], counts: list[int], asking: list[int]) -> list[Draft]:
        assert self.drafter is not None
        begun = self._clock()
        contexts = []
        for index in asking:
            state = lanes[index].lane
            assert state is not None
            contexts.append(state.drafts())
        proposals = self.drafter.propose(
            contexts,
            [lanes[index].tokens[-1] for index in asking],
            [lanes[index].position for index in asking],
            [counts[index] for index in asking],
        )
        elapsed = self._clock() - begun
        self.spent_s += elapsed
        self._curve.note_draft(elapsed)
        drafts = []
        for index, proposal in zip(asking, proposals, strict=True):
            legal = lanes[index].rules.legal(proposal.tokens)
            drafts.append(Draft(proposal.tokens[:legal], proposal.confidence[:legal], True))
        return drafts

    def _cut(self, lanes: list[Sequence], drafts: list[Draft], other_rows: int) -> None:
        """Cut the drafts of lanes that choose to what pays."""
        fixed = sum(
            len(draft.tokens)
            for lane, draft in zip(lanes, drafts, strict=True)
            if not self._chooses(lane)
        )
        choosing = [
            index for index, lane in enumerate(lanes) if self._chooses(lane) and drafts[index].asked
        ]
        if not choosing:
            return
        expected = [lanes[i].trust.doubted(drafts[i].confidence) for i in choosing]
        line = self._curve.line
        others = other_rows + fixed + len(lanes) - len(choosing)
        chosen = choose_drafts(expected, [len(each) for each in expected], line, others)
        if not pays(expected, chosen, line, others):
            chosen = [0] * len(chosen)
        for index, count in zip(choosing, chosen, strict=True):
            draft = drafts[index]
            drafts[index] = Draft(draft.tokens[:count], draft.confidence, True)
