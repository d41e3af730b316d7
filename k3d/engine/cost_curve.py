"""What a pass costs by its rows: pass(r) = a + b r, measured at start and followed afterwards."""

from __future__ import annotations

from dataclasses import dataclass

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
