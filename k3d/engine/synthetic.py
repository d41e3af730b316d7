"""Acceptance that is made up, for benchmarks of random text only: drafts are accepted unchecked,
so what is written is the drafter's and not the model's."""

from __future__ import annotations

from dataclasses import dataclass

from k3d.errors import ConfigError


@dataclass
class SyntheticAcceptance:
    """A mean acceptance length with the least variance: whole drafts always, one more as often as
    the fraction says."""

    length: float
    _owed: float = 0.0

    def __post_init__(self) -> None:
        if not self.length >= 1.0:
            raise ConfigError(f"a synthetic acceptance length of {self.length} is below 1")

    @property
    def drafts(self) -> int:
        """Drafts that a round verifies."""
        return int(-(-(self.length - 1.0) // 1))

    def next(self) -> int:
        """Drafts that the next round accepts."""
        self._owed += self.length - 1.0
        accepted = int(self._owed + 1e-9)
        self._owed -= accepted
        return accepted
