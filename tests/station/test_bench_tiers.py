"""What a tier costs, fitted to made layers; and a real measurement of an embedded pod."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from k3d.errors import ConfigError
from k3d.placement.costs import RECEIPT, costs_of
from k3d.placement.pod import SPARK_TIER, load_pod
from k3d.station.bench_tiers import bench_tiers
from k3d.station.options import StationOptions
from k3d.station.tier_fit import Layers, fitted, joined
from k3d.store.records import Receipt

OWN = ("hbm", "rtx")
TIERS = (*OWN, SPARK_TIER)
CALL, EACH = np.array([200.0, 90.0, 800.0]), np.array([30.0, 10.0, 55.0])


def _made(
    seed: int, share: tuple[float, float, float], rows: int = 1, contention: float = 0.0
) -> Layers:
    """Layers of four picks over the tiers: the Station's own in turns, the sparks beside them."""
    rng = np.random.default_rng(seed)
    experts = rng.multinomial(4, share, 3000).astype(float)
    more = rng.integers(0, 5, experts.shape) * (experts > 0) * (rows > 1)
    each = (experts > 0) * CALL + experts * EACH + more * 7.0
    station, spark = each[:, :2].sum(axis=1), each[:, 2]
    times = np.maximum(station, spark) + contention * np.minimum(station, spark)
    noise = rng.exponential(0.02, len(times)) * times
    return Layers(TIERS, experts, more.astype(float), times + noise)


@pytest.mark.parametrize("contention", [0.0, 0.3, 0.7, 1.0])
def test_costs_are_found_again_in_made_layers(seed: int, contention: float) -> None:
    own = _made(seed, (0.6, 0.4, 0))
    single = joined(
        [
            own,
            _made(seed, (0.3, 0.2, 0.5), contention=contention),
            _made(seed, (0, 0, 1)),
        ]
    )
    found = fitted(own, single, joined([_made(seed, (0.6, 0.4, 0), 4), _made(seed, (0, 0, 1), 4)]))
    assert found.contention == pytest.approx(contention, abs=0.06)
    for index, tier in enumerate(TIERS):
        cost = found.tiers[tier]
        assert cost["call_us"] == pytest.approx(CALL[index], rel=0.15, abs=8)
        assert cost["expert_us"] == pytest.approx(EACH[index], rel=0.15, abs=2)
        assert cost["row_us"] == pytest.approx(7.0, rel=0.3)
        assert cost["residual"] < 0.05


def test_a_cost_is_never_below_zero(seed: int) -> None:
    layers = Layers(("hbm",), np.array([[1.0], [2.0]] * 20), np.zeros((40, 1)),
                    np.array([9.0, 5.0] * 20))  # fmt: skip
    found = fitted(layers, layers, layers)
    assert found.contention == 0
    cost = found.tiers["hbm"]
    assert cost["call_us"] > 0
    assert cost["expert_us"] == 0


@pytest.mark.pod
def test_an_embedded_pod_is_measured_and_its_receipt_serves(home: Path) -> None:
    options = StationOptions("inproc", "layer-balanced", "bf16", 256)
    figures = bench_tiers(home, "embedded-2", options, 4, 1)
    assert (figures["provenance"], figures["pod"], figures["sparks"]) == (
        "measured",
        "embedded-2",
        2,
    )
    assert figures["simulated"]
    receipt = Receipt("r", 1, RECEIPT, figures["provenance"], "", figures, {})
    costs = costs_of(load_pod("embedded-2"), [receipt])
    assert {cost.source for cost in costs.tiers} == {"receipt r"}
    assert costs.processors == (0, 0, 0, 1)
    assert costs.contention == figures["contention"]


def test_a_pod_of_more_machines_is_not_measured_here(home: Path) -> None:
    options = StationOptions("tcp", "fastest-first", "bf16", 256)
    with pytest.raises(ConfigError, match="spans machines"):
        bench_tiers(home, "station-8-sparks", options, 4, 1)
