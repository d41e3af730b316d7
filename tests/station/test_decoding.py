"""What a Station decodes with, and what it refuses to."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from k3d.engine.offline import OfflineModel
from k3d.errors import ConfigError
from k3d.placement.pod import PodDescription, load_pod
from k3d.station.decoding import find_drafter, limits_of, synthetic_acceptance
from k3d.station.options import StationOptions, station_options

GOLDEN = Path(__file__).parents[1] / "golden" / "k3-golden-nvfp4"


@pytest.fixture
def pod(home: Path) -> PodDescription:
    return load_pod("embedded", home)


def options(pod: PodDescription, **flags: object) -> StationOptions:
    plain = {"transport": None, "placement": None, "dtype": None, "chunk": None}
    return station_options(Namespace(**plain, **flags), pod)


def test_the_description_says_it_and_flags_override(pod: PodDescription) -> None:
    plain = options(pod)
    assert (plain.drafter, plain.prefix_mib, plain.synthetic_acceptance) == ("auto", 64, None)
    limits = limits_of(pod, plain)
    assert (limits.lanes, limits.row_bytes, limits.snapshot_bytes) == (16, 96 * 2**20, 64 * 2**20)
    flagged = options(pod, drafter="none", prefix_mib=0)
    assert flagged.drafter == "none"
    assert limits_of(pod, flagged).snapshot_bytes == 0


def test_made_up_acceptance_is_refused_where_someone_could_read_it(pod: PodDescription) -> None:
    assert synthetic_acceptance(options(pod), pod) is None
    wanted = options(pod, synthetic_acceptance=3.0, prefix_mib=0)
    found = synthetic_acceptance(wanted, pod)
    assert found is not None
    assert found.length == 3.0
    with pytest.raises(ConfigError, match="a prefix cache would keep it"):
        synthetic_acceptance(replace(wanted, prefix_mib=64), pod)
    for open_to_all in ({"host": "10.0.0.1"}, {"api_host": "0.0.0.0"}):
        nodes = (msgspec.structs.replace(pod.nodes[0], **open_to_all), *pod.nodes[1:])
        with pytest.raises(ConfigError, match="for loopback only"):
            synthetic_acceptance(wanted, msgspec.structs.replace(pod, nodes=nodes))
    with pytest.raises(ConfigError, match=r"0\.5 is below 1"):
        synthetic_acceptance(replace(wanted, synthetic_acceptance=0.5), pod)


def test_a_drafter_is_found_or_named(home: Path) -> None:
    model = OfflineModel(GOLDEN, "bf16", 4)
    weights = model.model.weights
    for wanted in ("none", "auto"):
        assert find_drafter(wanted, GOLDEN, home, model.config, weights) is None
    with pytest.raises(ConfigError, match=r"no drafter in .*nowhere"):
        find_drafter("nowhere", GOLDEN, home, model.config, weights)
    mini = Path(__file__).parents[2] / "banks" / "k3-mini" / "drafter"
    with pytest.raises(ConfigError, match="hidden_size"):
        find_drafter(str(mini), GOLDEN, home, model.config, weights)
