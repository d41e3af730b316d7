"""What frames are made of: hops of a spark, gaps between tokens, rates between two counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from k3d.engine.cost_curve import CostLine
from k3d.engine.counts import EngineCounts, Totals
from k3d.engine.prefix_cache import CacheCounts
from k3d.station import token_gaps
from k3d.station.frame_rates import rates
from k3d.station.hop_ring import RING, HopRing
from k3d.station.token_gaps import TokenGaps


def test_hops_of_a_stretch_are_its_own() -> None:
    ring = HopRing()
    for number in range(100):
        ring.note(1000 * (number + 1), 500, 1)
    middle = ring.since(10, 20, most_rows=1)
    assert (middle.hops, middle.p50_us, middle.p99_us) == (10, 16.0, 20.0)
    assert middle.compute_us == 0.5
    assert ring.since(100, 100, 1).p50_us is None


def test_hops_of_prompts_count_and_are_not_timed() -> None:
    ring = HopRing()
    ring.note(5_000, 1_000, 1)
    ring.note(900_000, 700_000, 256)
    hops = ring.since(0, 2, most_rows=8)
    assert (hops.hops, hops.p99_us, hops.compute_us) == (2, 5.0, 1.0)
    assert ring.since(1, 2, most_rows=8).p50_us is None


def test_more_hops_than_the_ring_holds_are_the_newest() -> None:
    ring = HopRing()
    for number in range(3 * RING):
        ring.note(1000 * number, 0, 1)
    hops = ring.since(0, ring.count, 1)
    assert hops.hops == 3 * RING
    assert hops.p50_us == 2.5 * RING


@dataclass
class OneSequence:
    arrival: int
    written: int = 0


@dataclass
class OnePart:
    sequence: OneSequence
    draft: object | None = None


@dataclass
class Passes:
    """Passes at times of the test's choosing."""

    monkeypatch: pytest.MonkeyPatch
    gaps: TokenGaps = field(default_factory=TokenGaps)

    def run(self, at_us: int, parts: list[OnePart], used: list[int]) -> None:
        self.monkeypatch.setattr(token_gaps, "monotonic_ns", lambda: 1000 * at_us)
        for part, count in zip(parts, used, strict=True):
            part.sequence.written += count if part.draft is not None else 0
        self.gaps.note(cast(Any, parts), used)


def test_tokens_of_one_round_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    lane = OneSequence(1)
    prompt, decode = OnePart(lane), OnePart(lane, draft=object())
    passes.run(0, [prompt], [256])
    lane.written = 1  # the last chunk of a prompt gives the first token
    passes.run(1_000, [prompt], [40])
    assert passes.gaps.count == 0
    passes.run(4_000, [decode], [3])
    passes.run(6_000, [decode], [1])
    assert passes.gaps.count == 4
    assert passes.gaps.since(0, 4) == (1000.0, 2000.0)
    assert passes.gaps.since(3, 4) == (2000.0, 2000.0)
    assert passes.gaps.since(4, 4) == (None, None)


def test_lanes_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    first, second = (OnePart(OneSequence(n, written=1), draft=object()) for n in (1, 2))
    passes.run(0, [first], [1])
    passes.run(500, [second], [1])
    passes.run(1_000, [first, second], [1, 1])
    assert passes.gaps.since(0, passes.gaps.count) == (1000.0, 1000.0)
    assert passes.gaps.since(1, 2) == (500.0, 500.0)
    passes.run(9_000, [first], [0])
    assert passes.gaps.count == 2, "a round that failed wrote nothing"


def test_lanes_that_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_gaps, "MOST_LANES", 8)
    passes = Passes(monkeypatch)
    for arrival in range(100):
        passes.run(arrival, [OnePart(OneSequence(arrival, written=1), draft=object())], [1])
    assert len(passes.gaps._last_ns) <= 8


def counts(**fields: Any) -> EngineCounts:
    totals = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(Totals()).items()
    }
    known = {
        "running": 1, "waiting": 0, "draft_s": 0.0, "preempted": 0, "pages": 8, "free_pages": 6,
        "cache": None, "cost": CostLine(0.0, 0.0, 0.0, measured=False),
    }  # fmt: skip
    return EngineCounts(**{**known, **totals, **fields})


def test_rates_are_of_the_interval_and_nothing_is_none() -> None:
    before = counts(decode_tokens=100, prompt_tokens=50, rounds=10, accepted=(12, 6))
    now = counts(decode_tokens=130, prompt_tokens=50, rounds=20, accepted=(20, 8), refused=2)
    found = rates(now, before, 2.0)
    assert found["decode_tokens_per_s"] == 15.0
    assert found["prompt_tokens_per_s"] is None
    assert (found["decode_tokens"], found["refused"]) == (130, 2)
    assert found["acceptance_length"] == 2.0
    assert found["prefix_hit_share"] is None
    still = rates(now, now, 1.0)
    assert (still["decode_tokens_per_s"], still["acceptance_length"]) == (None, None)
    assert rates(now, before, 0.0)["decode_tokens_per_s"] is None


def test_the_share_of_prompts_that_was_reused() -> None:
    cache = CacheCounts(100, 40, 0, 0, 0, 0)
    later = replace(cache, asked_tokens=300, found_tokens=190)
    found = rates(counts(cache=later), counts(cache=cache), 1.0)
    assert found["prefix_hit_share"] == 0.75
    assert rates(counts(cache=cache), counts(cache=cache), 1.0)["prefix_hit_share"] is None
