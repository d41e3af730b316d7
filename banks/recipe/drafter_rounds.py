"""Real verification of a drafter, offline: rounds replayed over what the target writes greedily.

Under greedy verification the text is the target's own, and a draft counts while it equals that
text; so the rounds of a decoding engine follow from the text and the drafts at every anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from banks.recipe.drafter_model import Drafter, drafted
from banks.recipe.drafter_text import Text


@dataclass(frozen=True)
class Rounds:
    """Rounds of one or more rows.

    accepted int64 [rounds] drafts accepted; room int64 [rounds] tokens of the row behind the
    anchor; confidence fp32 [rounds, block] raw logits.
    """

    accepted: np.ndarray
    room: np.ndarray
    confidence: np.ndarray

    @staticmethod
    def joined(parts: Sequence[Rounds]) -> Rounds:
        """All rounds of `parts`."""
        return Rounds(
            np.concatenate([p.accepted for p in parts]),
            np.concatenate([p.room for p in parts]),
            np.concatenate([p.confidence for p in parts]),
        )

    @property
    def length(self) -> float:
        """Mean acceptance length: tokens kept, the target's own included, a round."""
        return float(np.minimum(self.accepted + 1, self.room).mean())

    def survived(self) -> tuple[np.ndarray, np.ndarray]:
        """bool [rounds, block]: whether drafts 1..k were accepted, and whether that is known."""
        k = np.arange(1, self.confidence.shape[1] + 1)
        return self.accepted[:, None] >= k, self.room[:, None] >= k

    def by_position(self) -> list[float]:
        """Share of drafts k accepted among those whose predecessors were."""
        good, known = self.survived()
        before = np.concatenate([np.ones_like(good[:, :1]), good[:, :-1]], 1) & known
        return [float(good[before[:, k], k].mean()) for k in range(good.shape[1])]


def rounds_of_row(
    ids: np.ndarray, start: int, end: int, drafts: np.ndarray, confidence: np.ndarray
) -> Rounds:
    """Rounds from anchor `start` until ids[:end] is written; drafts and confidence [tokens, block]
    are those of every anchor.
    """
    accepted, room, places = [], [], []
    p = start
    while p < end - 1:
        truth = ids[p + 1 : min(end, p + 1 + drafts.shape[1])]
        same = drafts[p, : len(truth)] == truth
        count = len(truth) if same.all() else int(same.argmin())
        accepted.append(count)
        room.append(end - 1 - p)
        places.append(p)
        p += count + 1
    return Rounds(np.array(accepted), np.array(room), confidence[np.array(places, int)])


@torch.no_grad()
def replayed(
    drafter: Drafter, embed: Tensor, head: Tensor, text: Text, group: int = 8
) -> list[Rounds]:
    """Rounds of every row of greedy text."""
    out: list[Rounds] = []
    tokens, block = text.ids.shape[1], drafter.c.block
    for at in range(0, text.ids.shape[0], group):
        part = text.rows(at, at + group)
        first, last = int(part.starts.min()), int(part.ends.max())
        anchors = torch.arange(first, last, device=part.ids.device).expand(part.ids.shape[0], -1)
        drafts, logits = drafted(drafter, embed, head, part.ids, part.taps, anchors.contiguous())
        ids, starts, ends = (t.cpu().numpy() for t in (part.ids, part.starts, part.ends))
        for row in range(len(ids)):
            every = np.zeros((tokens, block), np.int64)
            every[first:last] = drafts[row].cpu().numpy()
            sure = np.zeros((tokens, block), np.float32)
            sure[first:last] = logits[row].float().cpu().numpy()
            if starts[row] < ends[row] - 1:
                bounds = int(starts[row]), int(ends[row])
                out.append(rounds_of_row(ids[row], *bounds, every, sure))
    return out
