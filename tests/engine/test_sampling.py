"""Draws against an enumeration of the whole distribution."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from k3d.engine.request import Sampling
from k3d.engine.sampling import choose, uniform

F64 = torch.float64


def logits_of(*shares: float) -> torch.Tensor:
    return torch.log(torch.tensor(shares, dtype=F64))


def enumerated(logits: torch.Tensor, sampling: Sampling) -> dict[int, float]:
    """Probabilities of every token that may be drawn, in plain Python."""
    values = [value / sampling.temperature for value in logits.tolist()]
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))
    if sampling.top_k:
        order = order[: sampling.top_k]
    largest = max(values)
    mass = {token: math.exp(values[token] - largest) for token in order}
    total = sum(mass.values())
    kept, reached = [], 0.0
    for token in order:
        kept.append(token)
        reached += mass[token]
        if sampling.top_p < 1 and reached >= sampling.top_p * total * (1 - 1e-12):
            break
    total = sum(mass[token] for token in kept)
    return {token: mass[token] / total for token in kept}


def expected(logits: torch.Tensor, sampling: Sampling, position: int) -> tuple[int, float]:
    """The token that the draw falls on, and its distance from the nearest border."""
    drawn, below = uniform(sampling.seed, position), 0.0
    for token, share in enumerated(logits, sampling).items():
        if drawn < below + share:
            return token, min(drawn - below, below + share - drawn)
        below += share
    raise AssertionError("a draw outside the distribution")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("top_k", [0, 1, 3, 50])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
def test_draws_are_those_of_the_enumeration(
    seed: int, temperature: float, top_k: int, top_p: float
) -> None:
    logits = 2 * torch.randn(9, generator=torch.Generator().manual_seed(seed), dtype=F64)
    sampling = Sampling(temperature, top_p, top_k, seed)
    possible = enumerated(logits, sampling)
    for position in range(40):
        token, distance = expected(logits, sampling, position)
        found = choose(logits, sampling, position)
        assert found in possible
        if distance > 1e-9:
            assert found == token, f"seed {seed} position {position}"


def test_top_p_keeps_the_token_that_reaches_it() -> None:
    logits = logits_of(0.5, 0.25, 0.125, 0.125)
    for top_p, kept in ((0.5, {0}), (0.51, {0, 1}), (0.75, {0, 1}), (0.76, {0, 1, 2}), (1.0, None)):
        sampling = Sampling(temperature=1.0, top_p=top_p)
        found = {choose(logits, sampling, position) for position in range(300)}
        assert found == (kept or {0, 1, 2, 3})


def test_top_k_counts_among_ties_from_the_lower_id() -> None:
    sampling = Sampling(temperature=1.0, top_k=2)
    found = {choose(torch.zeros(5, dtype=F64), sampling, position) for position in range(200)}
    assert found == {0, 1}


@pytest.mark.parametrize("seed", range(3))
def test_frequencies(seed: int) -> None:
    shares = (0.5, 0.3, 0.15, 0.05)
    sampling = Sampling(temperature=1.0, seed=seed)
    count = 4000
    found = Counter(choose(logits_of(*shares), sampling, position) for position in range(count))
    for token, share in enumerate(shares):
        assert abs(found[token] / count - share) < 5 * math.sqrt(share / count), f"seed {seed}"


def test_greedy_takes_the_best_and_ties_go_to_the_lower_id() -> None:
    logits = torch.tensor([1.0, 3.0, 2.0, 3.0], dtype=F64)
    for seed in range(5):
        assert choose(logits, Sampling(seed=seed), seed) == 1


def test_a_cold_draw_is_greedy() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1), dtype=F64)
    best = int(logits.argmax())
    for temperature in (1e-3, 1e-300, 5e-324):
        assert choose(logits, Sampling(temperature=temperature, seed=9), 3) == best


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1), dtype=F64)
    sampling = Sampling(temperature=2.0, seed=7)
    forwards = [choose(logits, sampling, position) for position in range(60)]
    backwards = [choose(logits, sampling, position) for position in reversed(range(60))]
    assert forwards == backwards[::-1]
    assert forwards != [choose(logits, Sampling(2.0, seed=8), p) for p in range(60)]
    assert len(set(forwards)) > 5


def test_draws_are_even() -> None:
    draws = [
        uniform(seed, position) for seed in (-(2**63), -1, 0, 2**63 - 1) for position in range(500)
    ]
    assert all(0 <= draw < 1 for draw in draws)
    assert len(set(draws)) == len(draws)
    assert abs(sum(draws) / len(draws) - 0.5) < 0.04
    assert all(draw * 2**53 == int(draw * 2**53) for draw in draws)
