"""How many drafts are verified: against trying every number."""

from __future__ import annotations

import random
from itertools import accumulate, product
from operator import mul

import pytest

from k3d.engine.choose_rows import choose_drafts, pays
from k3d.engine.cost_curve import CostCurve, CostLine

REPORTED = CostLine(0.038, 0.0044, 0.0, measured=True)
"""The published pod: 38 + 4.4 r ms."""


def rate(confidence: list[list[float]], counts: tuple[int, ...], line: CostLine) -> float:
    """Expected tokens a second."""
    lanes = len(confidence)
    gain = sum(
        sum(accumulate(each[:count], mul)) for each, count in zip(confidence, counts, strict=True)
    )
    return (lanes + gain) / line.pass_s(lanes + sum(counts))


@pytest.mark.parametrize(
    ("alpha", "rows"),
    [(0.2, 2), (0.3, 2), (0.4, 3), (0.5, 3), (0.6, 4), (0.7, 5), (0.8, 7), (0.85, 8), (0.95, 8)],
)
def test_the_best_rows_of_the_reported_cost(alpha: float, rows: int) -> None:
    [chosen] = choose_drafts([[alpha] * 7], [7], REPORTED)
    assert 1 + chosen == rows


def test_one_lane_gets_the_best_there_is(seed: int) -> None:
    noise = random.Random(seed)
    for _ in range(200):
        confidence = [[noise.random() for _ in range(7)]]
        line = CostLine(noise.random(), 0.3 * noise.random(), 0.0, measured=True)
        [chosen] = choose_drafts(confidence, [7], line)
        best = max(rate(confidence, (count,), line) for count in range(8))
        assert rate(confidence, (chosen,), line) == pytest.approx(best)


def test_lanes_share_rows_as_well_as_any_sharing(seed: int) -> None:
    noise = random.Random(seed)
    for _ in range(30):
        confidence = [[noise.random() for _ in range(4)] for _ in range(3)]
        line = CostLine(1.0, 0.25 * noise.random(), 0.0, measured=True)
        chosen = choose_drafts(confidence, [4, 4, 4], line)
        best = max(rate(confidence, counts, line) for counts in product(range(5), repeat=3))
        assert rate(confidence, tuple(chosen), line) == pytest.approx(best)


def test_limits_and_free_rows() -> None:
    sure, free = [[1.0] * 7, [0.9] * 7], CostLine(1.0, 0.0, 0.0, measured=True)
    assert choose_drafts(sure, [3, 0], free) == [3, 0]
    assert choose_drafts(sure, [7, 7], free) == [7, 7]
    assert choose_drafts([[], [0.5]], [0, 1], free) == [0, 1]
    assert choose_drafts([[0.01] * 7], [7], REPORTED) == [0]


def test_drafting_that_costs_more_than_it_brings_does_not_pay() -> None:
    dear = CostLine(0.038, 0.0044, 0.030, measured=True)
    assert pays([[0.9] * 7], [7], dear)
    assert not pays([[0.3] * 7], [1], dear)
    assert not pays([[0.3] * 7], [0], dear)
    assert pays([[0.3] * 7], [0], REPORTED)


def test_the_line_is_found_through_noise(seed: int) -> None:
    noise, curve = random.Random(seed), CostCurve()
    assert not curve.line.measured
    curve.note_pass(1, 0.042)
    assert not curve.line.measured  # one count of rows has no slope
    for _ in range(300):
        rows = noise.choice((1, 2, 4, 8))
        curve.note_pass(rows, 0.038 + 0.0044 * rows + noise.gauss(0.0, 0.001))
    line = curve.line
    assert line.measured
    assert line.fixed_s == pytest.approx(0.038, rel=0.05)
    assert line.row_s == pytest.approx(0.0044, rel=0.1)


def test_the_line_follows_a_machine_that_slows_down_and_never_falls() -> None:
    curve = CostCurve()
    for scale in (1.0, 3.0):
        for turn in range(300):
            rows = 1 + turn % 8
            curve.note_pass(rows, scale * (0.02 + 0.002 * rows))
    assert curve.line.pass_s(1) == pytest.approx(0.066, rel=0.05)
    odd = CostCurve()
    odd.note_pass(1, 1.0)
    odd.note_pass(8, 0.5)
    assert odd.line.row_s == 0.0
    assert odd.line.fixed_s > 0.0
