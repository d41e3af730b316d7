"""Drift: how far the traffic that a pod sees is from the traffic its map was planned from.

divergence  Jensen-Shannon, in bits, of the experts chosen in a layer; the mean over layers
noise       what two samples of one population, as large as these, differ by: drawn a few times
            from the two together, as many independent picks as they amount to (population.py)
hot sets    the most chosen experts of both, and how many they share
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from k3d.errors import ConfigError
from k3d.placement.drift_limits import DriftLimits
from k3d.placement.placement_map import PlacementMap
from k3d.placement.population import Population
from k3d.placement.trace_stats import hottest

Verdict = Literal["none", "drift", "too-few", "no-origin"]
LEAST_TOKENS = 64
DEVIATIONS = 4.0
"""Standard deviations, of few draws, above the mean that chance alone does not reach."""
NOISY = 2.0
"""Noise of so many times the limit hides what matters."""
DRAWS = 8
MOST_TOKENS = 2**24
"""Beyond these nobody waits for more."""


@dataclass(frozen=True)
class TierShare:
    """Picks that a tier takes. `expected` is of the map's origin and None without one; `error` is
    two standard deviations of the share seen, and both are None when nothing was."""

    tier: str
    held: int
    expected: float | None
    seen: float | None
    error: float | None


@dataclass(frozen=True)
class Divergence:
    """`noise_bits` is what chance alone gives, `most_bits` what it hardly exceeds."""

    bits: float
    noise_bits: float
    most_bits: float

    @property
    def beyond_noise(self) -> bool:
        return self.bits > self.most_bits

    @property
    def excess_bits(self) -> float:
        """What is left when the noise is taken off."""
        return max(0.0, self.bits - self.noise_bits)


@dataclass(frozen=True)
class HotSets:
    """`shared` of the `hot` most chosen experts are the same; `by_noise` would be if both were
    samples of one population."""

    hot: int
    shared: float
    by_chance: float
    by_noise: float


@dataclass(frozen=True)
class Drift:
    """What was seen, held against what the map was planned from.

    `needed_tokens` would be enough to tell; None when the origin itself is too small for that, or
    there is none.
    """

    verdict: Verdict
    tokens: int
    expected_tokens: int | None
    tiers: tuple[TierShare, ...]
    divergence: Divergence | None
    hot_sets: HotSets | None
    needed_tokens: int | None
    limits: DriftLimits


def find_drift(
    placed: PlacementMap,
    expected: Population | None,
    seen: Population,
    *,
    limits: DriftLimits | None = None,
    hot: int | None = None,
    draws: int = DRAWS,
) -> Drift:
    """Measure drift. `hot` is the size of a hot set, a tenth of all by default; `draws`, 2 at
    least, pairs of samples say what is noise. The same arguments give the same figures.

    Raises ConfigError for populations of different models.
    """
    limits = limits or DriftLimits()
    for population in (seen, *([expected] if expected else [])):
        if population.counts.shape != (len(placed.layers), placed.experts):
            raise ConfigError(
                f"the map places {len(placed.layers)} layers of {placed.experts} experts, the "
                f"traffic is of {population.counts.shape[0]} of {population.counts.shape[1]}",
                hint="use traffic of the pod's own model",
            )
    if expected is not None and expected.spread > seen.spread:
        # Few sequences cannot show how much they differ from each other.
        seen = replace(seen, spread=expected.spread)
    tiers = _tier_shares(placed, expected, seen)
    if expected is None or not seen.tokens:
        verdict: Verdict = "no-origin" if expected is None else "too-few"
        least = LEAST_TOKENS if expected else None
        known = expected.tokens if expected else None
        return Drift(verdict, seen.tokens, known, tiers, None, None, least, limits)
    hot = hot or max(1, seen.counts.size // 10)
    if not 0 < hot <= seen.counts.size:
        raise ConfigError(
            f"a hot set of {hot} experts of {seen.counts.size}",
            hint=f"use 1 to {seen.counts.size}",
        )
    noise = _Noise(_shares(expected.counts + seen.counts), draws)
    noise.sample(expected.picks, seen.picks, hot)
    divergence = Divergence(_divergence(expected.counts, seen.counts), noise.bits, noise.most_bits)
    shared = _shared(expected.counts, seen.counts, hot)
    hot_sets = HotSets(hot, shared, hot / seen.counts.size, noise.shared)
    verdict = _verdict(seen, divergence, hot_sets, limits)
    return Drift(
        verdict=verdict,
        tokens=seen.tokens,
        expected_tokens=expected.tokens,
        tiers=tiers,
        divergence=divergence,
        hot_sets=hot_sets,
        needed_tokens=_needed(noise, expected, seen, limits) if verdict == "too-few" else None,
        limits=limits,
    )


class _Noise:
    """Pairs of samples of one population, shares f64 [layers, experts]."""

    def __init__(self, shares: NDArray[np.float64], draws: int) -> None:
        self._shares = shares
        self._draws = max(2, draws)
        self.bits = self.most_bits = self.shared = 0.0

    def sample(self, n: float, m: float, hot: int) -> None:
        """Draw pairs of n and m picks a layer; figures are of these from then on."""
        rng = np.random.default_rng(0)
        bits, shared = [], []
        for _ in range(self._draws):
            a, b = (
                np.stack([rng.multinomial(max(1, round(size)), row) for row in self._shares])
                for size in (n, m)
            )
            bits.append(_divergence(a, b))
            shared.append(_shared(a, b, hot))
        self.bits, self.shared = float(np.mean(bits)), float(np.mean(shared))
        self.most_bits = self.bits + DEVIATIONS * float(np.std(bits, ddof=1))


def _verdict(
    seen: Population, divergence: Divergence, hot_sets: HotSets, limits: DriftLimits
) -> Verdict:
    if seen.tokens < LEAST_TOKENS or divergence.most_bits > NOISY * limits.divergence_bits:
        return "too-few"
    apart = divergence.excess_bits >= limits.divergence_bits or hot_sets.shared <= limits.overlap
    return "drift" if divergence.beyond_noise and apart else "none"


def _needed(
    noise: _Noise, expected: Population, seen: Population, limits: DriftLimits
) -> int | None:
    """Tokens with which noise no longer hides what matters: the least of doubled numbers."""
    tokens = LEAST_TOKENS
    while tokens <= MOST_TOKENS:
        noise.sample(expected.picks, tokens * seen.top_k / seen.spread, 1)
        if noise.most_bits <= NOISY * limits.divergence_bits:
            return tokens
        tokens *= 2
    return None


def _tier_shares(
    placed: PlacementMap, expected: Population | None, seen: Population
) -> tuple[TierShare, ...]:
    home = np.frombuffer(placed.tier_of, np.uint8)
    here = _by_tier(home, seen, len(placed.tiers))
    there = None if expected is None else _by_tier(home, expected, len(placed.tiers))
    picks = seen.picks * len(placed.layers)
    return tuple(
        TierShare(
            tier=tier,
            held=placed.counts[tier],
            expected=None if there is None else float(there[number]),
            seen=float(here[number]) if picks else None,
            error=float(2 * np.sqrt(here[number] * (1 - here[number]) / picks)) if picks else None,
        )
        for number, tier in enumerate(placed.tiers)
    )


def _by_tier(home: NDArray[np.uint8], population: Population, tiers: int) -> NDArray[np.float64]:
    picks = np.bincount(home, weights=population.counts.ravel(), minlength=tiers)
    return picks / max(1.0, picks.sum())


def _divergence(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Of counts [layers, experts]."""
    p, q = _shares(a), _shares(b)
    middle = (p + q) / 2
    return float((_relative_bits(p, middle) + _relative_bits(q, middle)).mean() / 2)


def _shared(a: NDArray[np.int64], b: NDArray[np.int64], hot: int) -> float:
    return float((hottest(a, hot) & hottest(b, hot)).sum() / hot)


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each layer's picks; a layer without any is even."""
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(1, total), 1.0 / counts.shape[1])


def _relative_bits(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Relative entropy of p to q, f64 [layers]; q is not 0 where p is not."""
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    return (p * np.log2(ratio)).sum(axis=1)
