"""Candidates: which there are, what one would change, and what stands against it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from k3ctl.client import candidate_work
from k3ctl.client.candidates import (
    choices,
    maps_directory,
    newest_trace,
    use_shares,
    weigh,
)
from k3d.errors import K3Error
from k3d.placement.costs import RECEIPT
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import load_pod
from k3d.placement.policy import load_policy, read_map
from k3d.placement.policy import plan as plan_blind
from k3d.placement.trace import TraceHeader
from k3d.placement.trace_writer import TraceWriter
from k3d.store.state import StateStore
from tests.tui.fake_station import uses

LAYERS, EXPERTS, TOP_K = 12, 64, 4


@pytest.fixture
def served(home: Path) -> PlacementMap:
    """A home whose pod came up with layer-balanced, all tiers of which were measured."""
    pod = load_pod("embedded-1", home)
    placed = plan_blind(
        range(1, LAYERS + 1), EXPERTS, pod.slots, load_policy("layer-balanced", home)
    )
    figures = {
        "pod": pod.name,
        "sparks": 1,
        "tiers": {
            tier: {"call_us": 10.0 * (at + 1), "expert_us": 5.0 * (at + 1)}
            for at, tier in enumerate(pod.slots)
        },
    }
    with StateStore.open_as_writer(home, holder="test") as store:
        store.record_pod(pod.name, "d", msgspec.to_builtins(pod))
        store.record_placement_map(1, placed.digest, "layer-balanced", placed.to_json())
        store.record_receipt(
            RECEIPT, provenance="measured", command="test", figures=figures, environment={}
        )
    return placed


@pytest.fixture
def trace(home: Path) -> Path:
    """Tokens that all choose the first experts of every layer."""
    path = home / "live.k3trace"
    header = TraceHeader(
        layers=tuple(range(1, LAYERS + 1)), experts=EXPERTS, top_k=TOP_K, weights=False
    )
    ids = np.tile(np.arange(TOP_K, dtype=np.uint16), (40, LAYERS, 1))
    with TraceWriter(path, header) as writer:
        writer.append(ids, None, np.zeros(40, np.uint32))
    return path


def test_every_policy_and_map_is_a_choice_once(home: Path, served: PlacementMap) -> None:
    maps_directory(home).mkdir()
    looked_at = maps_directory(home) / "hot-cold.json"
    mine = home / "mine.json"
    for path in (looked_at, mine):
        path.write_bytes(served.to_json())
    (home / "other.json").write_text("{}")
    (home / "policies" / "placement").mkdir(parents=True)
    (home / "policies" / "placement" / "broken.toml").write_text("policy = 3")
    found = {choice.name: choice for choice in choices(home)}
    assert found["contiguous"].kind == "policy"
    assert not found["contiguous"].traced
    assert found["hot-cold"].traced
    assert found[str(mine)].kind == "map"
    assert str(looked_at) not in found
    assert str(home / "other.json") not in found
    assert "broken.toml" in (found["broken"].reason or "")


def test_the_trace_recorded_last_is_taken_else_the_newest(home: Path, trace: Path) -> None:
    assert newest_trace(home) == trace
    recorded = home / "sub.bin"
    recorded.write_bytes(b"x")
    assert newest_trace(home, str(recorded)) == recorded
    assert newest_trace(home, str(home / "gone")) == trace
    assert newest_trace(home / "run") is None


def test_a_candidate_is_predicted_from_measured_costs(
    home: Path, served: PlacementMap, trace: Path
) -> None:
    found = weigh(home, "all-hbm", trace, keep=False)
    assert found.counts_then == {"hbm": 768, "rtx": 0, "grace": 0, "spark": 0}
    assert found.counts_now == served.counts
    assert found.moves == 768 - served.counts["hbm"]
    assert found.argument == "all-hbm"
    made = found.prediction
    assert made is not None
    # Every layer calls hbm once, for four experts: 10 + 4 x 5 us.
    assert made.then.mean_us == pytest.approx(LAYERS * 30.0)
    assert made.provenance == "modelled"
    assert {tier.cost_provenance for tier in made.tiers} == {"measured"}
    assert all(tier.cost_source.startswith("receipt ") for tier in made.tiers)
    assert made.gain == pytest.approx(1 - made.then.mean_us / made.now.mean_us)
    assert {tier.tier: tier.share_then for tier in made.tiers}["hbm"] == 1.0


def test_a_map_planned_from_a_trace_is_kept_only_when_it_may_be(
    home: Path, served: PlacementMap, trace: Path
) -> None:
    looked_at = candidate_work.weigh(home, "hot-cold", trace, keep=False)
    assert looked_at.argument is None
    assert not maps_directory(home).exists()
    kept = candidate_work.weigh(home, "hot-cold", trace, keep=True)
    assert kept.argument is not None
    assert kept.argument == str(maps_directory(home) / "hot-cold.json")
    assert read_map(Path(kept.argument)).tier_of == kept.tier_of == looked_at.tier_of


def test_without_a_trace_there_are_counts_and_no_prediction(
    home: Path, served: PlacementMap
) -> None:
    found = candidate_work.weigh(home, "contiguous", None, keep=False)
    assert found.prediction is None
    assert "k3ctl trace record" in (found.not_predicted or "")
    assert sum(found.counts_then.values()) == 768
    with pytest.raises(K3Error, match="ranks experts by a trace"):
        weigh(home, "hot-cold", None, keep=False)


def test_a_home_that_had_no_pod_and_a_trace_of_another_model_are_refused(
    home: Path, trace: Path
) -> None:
    with pytest.raises(K3Error, match=r"state\.db"):
        weigh(home, "contiguous", None, keep=False)
    placed = PlacementMap(1, ("hbm",), (1, 2), 2, bytes(4), (0, 1, 2, 3))
    pod = load_pod("embedded-1", home)
    with StateStore.open_as_writer(home, holder="test") as store:
        store.record_pod(pod.name, "d", msgspec.to_builtins(pod))
        store.record_placement_map(1, placed.digest, "p", placed.to_json())
    with pytest.raises(K3Error, match="12 layers of 64 experts, the pod serves 2 of 2"):
        candidate_work.weigh(home, "hot-cold", trace, keep=False)


def test_shares_of_uses_under_a_map() -> None:
    assert use_shares([[1, 2], [3, 4]], bytes([0, 1, 1, 0]), ("a", "b")) == {"a": 0.5, "b": 0.5}
    assert use_shares([[0, 0]], bytes(2), ("a",)) is None
    assert use_shares([[1, 1]], bytes(3), ("a",)) is None
    counted = uses(LAYERS, EXPERTS)
    shares = use_shares(counted, bytes(at % 3 for at in range(768)), ("a", "b", "c"))
    assert shares is not None
    assert sum(shares.values()) == pytest.approx(1.0)
