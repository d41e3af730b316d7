"""Confidence corrected by what a sequence sees, and rests."""

from __future__ import annotations

import random

import pytest

from k3d.engine.trust import DOUBT, FIRST_REST, IDLE_ROUNDS, MOST_REST, Trust, common_bias


@pytest.mark.parametrize(("claimed", "true"), [(0.9, 0.4), (0.3, 0.8), (0.6, 0.6), (1.0, 0.2)])
def test_it_learns_what_is_true(claimed: float, true: float, seed: int) -> None:
    noise, trust = random.Random(seed), Trust()
    seen = []
    for turn in range(600):
        accepted = 0
        while accepted < 4 and noise.random() < true:
            accepted += 1
        if turn > 200:
            seen.append(trust.corrected([claimed] * 4)[1])
        trust.learn([claimed] * 4, 4, accepted)
    assert sum(seen) / len(seen) == pytest.approx(true, abs=0.12)


def test_a_draft_after_a_wrong_one_says_nothing() -> None:
    trust = Trust()
    trust.learn([0.5, 0.5, 0.5], 3, 0)
    assert trust.corrected([0.5, 0.5])[0] < 0.5
    assert trust.corrected([0.5, 0.5])[1] == 0.5


def test_a_new_sequence_starts_where_the_others_are(seed: int) -> None:
    noise, common = random.Random(seed), common_bias()
    for _ in range(40):
        trust = Trust(common)
        for _ in range(20):
            trust.learn([0.9], 1, int(noise.random() < 0.3))
    assert Trust(common).corrected([0.9])[0] == pytest.approx(0.3, abs=0.2)
    assert Trust().corrected([0.9])[0] == pytest.approx(0.9)


def test_what_is_chosen_by_is_a_little_less() -> None:
    trust = Trust()
    assert trust.doubted([0.8, 0.5]) == pytest.approx([0.8 * DOUBT, 0.5])
    assert trust.doubted([]) == []


def test_rests_grow_and_end_with_a_draft_that_is_right() -> None:
    trust = Trust()
    rests = []
    for _ in range(6):
        while trust.asks:
            trust.learn([0.01], 0, 0)
        rest = 0
        while not trust.asks:
            trust.rest_a_round()
            rest += 1
        rests.append(rest)
    assert rests == [FIRST_REST, 16, 32, MOST_REST, MOST_REST, MOST_REST]
    trust.learn([0.9], 1, 1)
    for _ in range(IDLE_ROUNDS):
        assert trust.asks
        trust.learn([0.01], 0, 0)
    assert not trust.asks


@pytest.mark.parametrize("confidence", [0.0, 1.0, float("1e-300")])
def test_the_ends_of_the_scale_are_no_trouble(confidence: float) -> None:
    trust = Trust()
    for accepted in (0, 1) * 50:
        trust.learn([confidence], 1, accepted)
    assert 0.0 < trust.corrected([confidence])[0] < 1.0
