"""How many rows each lane verifies in a round."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from k3d.engine.cost_curve import CostLine


def choose_drafts(
    confidence: Sequence[Sequence[float]], most: Sequence[int], line: CostLine, other_rows: int = 0
) -> list[int]:
    """Drafts to verify a lane: those that raise expected tokens a second.

    confidence[i] holds the conditional acceptance of lane i's drafts, of which at most most[i] may
    be verified; `other_rows` ride in the same pass. Drafts of all lanes are admitted in order of
    survival (the product of conditional acceptances, which falls along a lane, so prefixes stay
    prefixes) until one lowers

        (lanes + sum of survivals admitted) / pass(rows admitted)

    The drafting itself is paid already and does not count here; see `pays` for whether it should
    have been asked for.
    """
    lanes = len(confidence)
    offers = [
        (survival, -lane, -k)
        for lane, each in enumerate(confidence)
        for k, survival in enumerate(accumulate(each[: most[lane]], mul))
    ]
    offers.sort(reverse=True)
    chosen = [0] * lanes
    expected, rows = float(lanes), lanes + other_rows
    for survival, lane, _ in offers:
        better = (expected + survival) / line.pass_s(rows + 1)
        if better < expected / line.pass_s(rows):
            break
        expected, rows = expected + survival, rows + 1
        chosen[-lane] += 1
    return chosen


def pays(
    confidence: Sequence[Sequence[float]],
    chosen: Sequence[int],
    line: CostLine,
    other_rows: int = 0,
) -> bool:
    """Whether a round, its drafting counted, is faster a token than plain decoding."""
    lanes = len(confidence)
    expected = lanes + sum(
        sum(accumulate(each[:count], mul)) for each, count in zip(confidence, chosen, strict=True)
    )
    rows = lanes + other_rows
    drafted_s = line.draft_s + line.pass_s(rows + sum(chosen))
    return expected / drafted_s >= lanes / line.pass_s(rows)
