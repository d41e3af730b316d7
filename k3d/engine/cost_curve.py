"""What a pass costs by its rows: pass(r) = a + b r, measured at start and followed afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from k3d.model.drafter.proposal import Drafter
from k3d.model.kimi_k3 import KimiK3, RoutedExperts, Span
from k3d.model.lane_state import LaneState

MEASURED_ROWS = (1, 2, 4, 8)
MEASURED_ROUNDS = 3
PROMPT_ROWS = 24
FORGET = 0.98
UNMEASURED = (1.0, 0.1)
"""Only the ratio counts before anything was measured."""


@dataclass(frozen=True)
class CostLine:
    """Seconds: a pass of r rows takes fixed_s + row_s * r, a block of drafts draft_s."""

    fixed_s: float
    row_s: float
    draft_s: float
    measured: bool

    def pass_s(self, rows: int) -> float:
        return self.fixed_s + self.row_s * rows


class CostCurve:
    """Least squares over (rows, seconds) that forgets; the line never slopes down."""

    def __init__(self) -> None:
        self._n = self._r = self._rr = self._s = self._rs = 0.0
        self._draft_s = 0.0
        self._counts: set[int] = set()

    def note_pass(self, rows: int, seconds: float) -> None:
        """A pass that held no part of a prompt."""
        self._n = FORGET * self._n + 1.0
        self._r = FORGET * self._r + rows
        self._rr = FORGET * self._rr + rows * rows
        self._s = FORGET * self._s + seconds
        self._rs = FORGET * self._rs + rows * seconds
        self._counts.add(rows)

    def note_draft(self, seconds: float) -> None:
        """Blocks of all lanes of one round."""
        self._draft_s = seconds if not self._draft_s else 0.9 * self._draft_s + 0.1 * seconds

    @property
    def line(self) -> CostLine:
        spread = self._n * self._rr - self._r * self._r
        if len(self._counts) < 2 or spread <= 1e-9 * self._rr:
            return CostLine(*UNMEASURED, 0.0, measured=False)
        row_s = max(0.0, (self._n * self._rs - self._r * self._s) / spread)
        fixed_s = max(1e-6, (self._s - row_s * self._r) / self._n)
        return CostLine(fixed_s, row_s, self._draft_s, measured=True)


def measure_costs(
    model: KimiK3,
    experts: RoutedExperts,
    drafter: Drafter | None,
    curve: CostCurve,
    clock: Callable[[], float],
    progressed: Callable[[], None],
) -> None:
    """Time passes of a few rows behind a short prompt, counts in turns, and blocks of drafts.
    `progressed` is called between them."""
    config = model.config
    counts = [rows for rows in MEASURED_ROWS if rows <= model.max_rows]
    prompt = min(PROMPT_ROWS, model.max_rows)
    ids = [(37 * i + 1) % config.vocab_size for i in range(prompt + counts[-1])]
    lane = LaneState.alone(config, model.dtype, len(ids))
    chunk = Span(lane, ids[:prompt])
    wanted = torch.tensor([0])
    taps = drafter.taps if drafter is not None else None
    with torch.inference_mode():
        tapped = model.forward([chunk], experts, wanted, taps).taps
        model.commit(chunk, prompt)
        model.forward([Span(lane, ids[prompt:], ahead=True)], experts, wanted)  # warms up
        best = dict.fromkeys(counts, float("inf"))  # what is slower had other causes
        for _ in range(MEASURED_ROUNDS):
            for rows in counts:
                progressed()
                begun = clock()
                span = Span(lane, ids[prompt : prompt + rows], ahead=True)
                model.forward([span], experts, torch.arange(rows), taps)
                best[rows] = min(best[rows], clock() - begun)
        for rows, seconds in best.items():
            curve.note_pass(rows, seconds)
        if drafter is None or tapped is None:
            return
        positions, after = torch.arange(prompt), torch.tensor(ids[1 : prompt + 1])
        context = drafter.context_rows(tapped, positions, after)
        for turn in range(1 + MEASURED_ROUNDS):
            progressed()
            begun = clock()
            drafter.propose([context], [ids[prompt]], [prompt], [drafter.block])
            if turn:  # the first one warms up
                curve.note_draft(clock() - begun)
