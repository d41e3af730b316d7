"""The ledger: the published budgets, what is short, and what is not described."""

from __future__ import annotations

import msgspec
import pytest

from k3d.errors import ConfigError
from k3d.placement.ledger import LedgerModel, make_ledger
from k3d.placement.pod import PodDescription, load_pod, parse_pod

POD = """
schema = "k3-pod/1"
name = "small"
[model_facts]
layers = 5
moe_layers = 4
experts = 10
expert_bytes = 100
[[node]]
name = "station"
role = "station"
[[node.tier]]
name = "hbm"
slots = 20
[[node]]
name = "spark-1"
role = "spark"
[[node.tier]]
name = "spark"
slots = 30
[[node]]
name = "spark-2"
role = "spark"
[[node.tier]]
name = "spark"
slots = 30
"""
BUDGETS = """
[[budget]]
tier = "hbm"
size_bytes = 3_050
provenance = "measured"
[[budget.reserve]]
what = "weights"
size_bytes = 900
provenance = "reported"
of_model = true
[[budget]]
tier = "spark"
size_bytes = 1_790
provenance = "measured"
even_layers = true
[[budget]]
tier = "spark"
node = "spark-2"
size_bytes = 1_550
provenance = "assumed"
"""
COST = """
[[cost]]
tier = "hbm"
call_us = 1
expert_us = 1
provenance = "assumed"
"""


def _model(pod: PodDescription) -> LedgerModel:
    assert pod.model_facts is not None
    return LedgerModel.from_facts(pod.model_facts)


def test_the_published_budgets() -> None:
    pod = load_pod("station-8-sparks")
    ledger = make_ledger(pod, _model(pod))
    assert ledger.by_tier == {"hbm": 9_558, "rtx": 5_177, "grace": 24_852, "spark": 8 * 5_704}
    assert ledger.by_tier == pod.slots
    assert (ledger.total, ledger.spare, ledger.shortages) == (85_219, 2_787, ())
    labels = {item.provenance for tier in ledger.tiers for item in tier.reservations}
    assert labels == {"reported", "assumed"}
    assert [tier.uneven for tier in ledger.tiers] == [0, 0, 0] + [75] * 8
    budget = ledger.tiers[0].budget_bytes
    assert budget is not None
    assert round(budget / 2**30, 2) == 165.40


def test_budgets_of_a_small_pod() -> None:
    pod = parse_pod((POD + BUDGETS).encode())
    hbm, one, two = make_ledger(pod, _model(pod)).tiers
    assert (hbm.budget_bytes, hbm.fits, hbm.left_bytes, hbm.short) == (2_150, 21, 50, 0)
    assert (one.fits, one.uneven, one.left_bytes, one.described) == (16, 1, 190, 15)
    assert (two.fits, two.uneven) == (15, 0)
    ledger = make_ledger(pod, _model(pod))
    assert ledger.by_tier == {"hbm": 21, "spark": 2 * 15}
    assert (ledger.total, ledger.spare) == (51, 11)


def test_what_is_short_is_named() -> None:
    text = (POD + BUDGETS).replace("size_bytes = 3_050", "size_bytes = 1_000")
    pod = parse_pod(text.replace("size_bytes = 1_550", "size_bytes = 1_450").encode())
    assert make_ledger(pod, _model(pod)).shortages == (
        "tier hbm of station: 20 experts by its slots, 1 fit, 19 too many",
        "tier spark of spark-2: 15 experts by its slots, 14 fit, 1 too many",
        "pod small: 40 experts, 29 places, 11 short",
    )


def test_a_census_stands_in_for_the_weights() -> None:
    pod = parse_pod((POD + BUDGETS).encode())
    counted = LedgerModel(4, 40, 100, "measured", "headers", other_bytes=2_951)
    hbm = make_ledger(pod, counted).tiers[0]
    assert (hbm.fits, hbm.reservations[0].provenance) == (0, "measured")
    larger = LedgerModel(4, 40, 100, "measured", "headers", other_bytes=5_000)
    hbm = make_ledger(pod, larger).tiers[0]
    assert (hbm.budget_bytes, hbm.fits) == (-1_950, 0)


def test_without_budgets_the_slots_count() -> None:
    pod = parse_pod(POD.encode())
    ledger = make_ledger(pod, _model(pod))
    assert ledger.by_tier == {"hbm": 20, "spark": 30}
    assert {tier.provenance for tier in ledger.tiers} == {"assumed"}
    assert all(tier.fits is None for tier in ledger.tiers)
    embedded = make_ledger(load_pod("embedded"), LedgerModel(12, 768, 1, "measured", "headers"))
    assert {tier.provenance for tier in embedded.tiers} == {"simulated"}


def test_figures_do_not_change_what_a_pod_serves() -> None:
    assert parse_pod(POD.encode()).digest == parse_pod((POD + BUDGETS).encode()).digest


WRONG = [
    (r"budget\[0\].tier: no node has a tier rtx", BUDGETS.replace('"hbm"', '"rtx"')),
    (r"budget\[2\].node: station is no", BUDGETS.replace('node = "spark-2"', 'node = "station"')),
    (r"budget\[2\]: a second budget", BUDGETS.replace('node = "spark-2"\n', "")),
    (r"budget\[0\].reserve: 9000 bytes", BUDGETS.replace("900", "9_000")),
    ("provenance", BUDGETS.replace('"reported"', '"felt"')),
    ("size_bytes", BUDGETS.replace("= 900", "= -900")),
    (r"cost\[0\].tier: no node", COST.replace("hbm", "rtx")),
    (r"cost\[0\].call_us", COST.replace("call_us = 1", "call_us = -1")),
    (r"cost\[0\].call_us", COST.replace("call_us = 1", "call_us = nan")),
    (r"cost\[1\].tier: a second", COST + COST),
]


@pytest.mark.parametrize(("sentence", "text"), WRONG)
def test_wrong_figures_are_refused_with_their_key(sentence: str, text: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_pod((POD + text).encode())


def test_provenance_is_the_stores() -> None:
    from k3d.placement.budget import Provenance
    from k3d.store.schema import PROVENANCE

    assert msgspec.json.schema(Provenance)["enum"] == sorted(PROVENANCE)
