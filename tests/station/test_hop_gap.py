"""Who waits for the gap between two hops hears of it, and only as long as they wait."""

from __future__ import annotations

from k3d.station.hop_gap import HopGap


def test_all_who_wait_hear_of_a_gap_and_nobody_else() -> None:
    gap = HopGap()
    gap.opened()
    with gap.awaited() as first:
        assert not first.is_set(), "a gap that is over is none"
        with gap.awaited() as second:
            gap.opened()
            assert first.is_set()
            assert second.is_set()
        first.clear()
        second.clear()
        gap.opened()
        assert first.is_set()
        assert not second.is_set()
    first.clear()
    gap.opened()
    assert not first.is_set()
