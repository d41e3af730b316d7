"""Rotary positions: plain or YaRN, in the two ways of pairing channels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Yarn:
    """`amplitude` multiplies cosine and sine; `score_gain` multiplies the softmax scale."""

    factor: float
    original_positions: int
    beta_fast: float
    beta_slow: float
    amplitude: float
    score_gain: float


@dataclass(frozen=True)
class Rope:
    """Rotates `dim` channels: channel i with i + dim / 2, or neighbours if `interleaved`."""

    theta: float
    dim: int
    interleaved: bool
    yarn: Yarn | None

    @property
    def score_gain(self) -> float:
        return self.yarn.score_gain if self.yarn else 1.0

    def at(self, positions: Tensor) -> Turn:
        """The rotation of rows at `positions` i64 [rows]."""
        angles = positions.double().unsqueeze(-1) * self.frequencies()
        amplitude = self.yarn.amplitude if self.yarn else 1.0
        cosine, sine = torch.cos(angles) * amplitude, torch.sin(angles) * amplitude
        return Turn(self._pairs(cosine, cosine), self._pairs(-sine, sine), self.interleaved)

    def _pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """f32 [rows, dim]: what applies to the first and the second channel of every pair."""
        if self.interleaved:
            return torch.stack((first, second), dim=-1).flatten(-2).float()
        return torch.cat((first, second), dim=-1).float()

    def frequencies(self) -> Tensor:
        """Radians a position, f64 [dim / 2]."""
        pairs = torch.arange(self.dim // 2, dtype=torch.float64)
        plain = self.theta ** (-2.0 * pairs / self.dim)
        if self.yarn is None:
            return plain
        low, high = self.ramp()
        # 0 where a pair turns often enough to keep its frequency, 1 where it is interpolated.
        stretched = ((pairs - low) / max(high - low, 1e-3)).clamp(0.0, 1.0)
        return plain * (1.0 - stretched) + plain / self.yarn.factor * stretched

    def ramp(self) -> tuple[int, int]:
        """Pairs between which YaRN goes from kept to interpolated frequencies."""
        yarn = self.yarn
        assert yarn is not None

        def pair(turns: float) -> float:
            ratio = yarn.original_positions / (turns * 2.0 * math.pi)
            return self.dim * math.log(ratio) / (2.0 * math.log(self.theta))

        low, high = math.floor(pair(yarn.beta_fast)), math.ceil(pair(yarn.beta_slow))
        return max(low, 0), min(high, self.dim - 1)


@dataclass(frozen=True)
class Turn:
    """One rotation a row, f32 [rows, dim]: a channel times cosine plus its partner times sine."""

    cosine: Tensor
    sine: Tensor
    interleaved: bool

    def apply(self, x: Tensor) -> Tensor:
        """Rotate x [rows, ..., dim]."""
        between = (1,) * (x.dim() - 2)
        cosine = self.cosine.view(x.shape[0], *between, -1)
        sine = self.sine.view(x.shape[0], *between, -1)
        if self.interleaved:
            partners = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        else:
            partners = x.roll(x.shape[-1] // 2, dims=-1)
        return torch.addcmul(x * cosine, partners, sine)


def mscale(factor: float, weight: float) -> float:
    """YaRN's growth of attention with the stretch of the context."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0
