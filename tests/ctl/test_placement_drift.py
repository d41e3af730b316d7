"""k3ctl placement drift: on a recorded trace, with the map in force of a home without a pod."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from k3d.errors import ExitCode
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import load_pod
from k3d.placement.policy import load_policy, plan, read_map
from k3d.store.state import StateStore
from tests.ctl.conftest import K3ctl
from tests.ctl.test_placement import COSTS

HELDOUT = str(Path(__file__).resolve().parents[2] / "banks" / "k3-mini" / "heldout.npz")


@pytest.fixture
def streams(k3ctl: K3ctl, tmp_path: Path) -> str:
    return imported(k3ctl, tmp_path, "streams")


@pytest.fixture
def prompts(k3ctl: K3ctl, tmp_path: Path) -> str:
    return imported(k3ctl, tmp_path, "prompts")


def imported(k3ctl: K3ctl, tmp_path: Path, part: str) -> str:
    path = str(tmp_path / f"{part}.trace")
    ran = k3ctl("trace", "import", HELDOUT, path, "--part", part)
    assert ran.code == 0, ran.err
    return path


def in_force(home: Path, placed: PlacementMap, policy: str, *, costs: bool = True) -> None:
    """A home in which a pod has served by this map."""
    pod = load_pod("embedded")
    with StateStore.open_as_writer(home, holder="test") as store:
        store.record_pod(pod.name, pod.digest, msgspec.to_builtins(pod))
        store.record_placement_map(placed.epoch, placed.digest, policy, placed.to_json())
        if costs:
            figures = {"pod": "embedded", "sparks": 4, "tiers": COSTS}
            store.record_receipt(
                "tier-costs", provenance="measured", command="", figures=figures, environment={}
            )


@pytest.fixture
def planned(k3ctl: K3ctl, streams: str, home: Path, tmp_path: Path) -> PlacementMap:
    """The map in force, planned from streams."""
    out = tmp_path / "map.json"
    planning = ("placement", "plan", "--policy", "layer-balanced", "--trace", streams)
    # The embedded pod's receipt is not there yet: another pod's description has costs.
    with StateStore.open_as_writer(home, holder="test") as store:
        figures = {"pod": "embedded", "sparks": 4, "tiers": COSTS}
        store.record_receipt(
            "tier-costs", provenance="measured", command="", figures=figures, environment={}
        )
    ran = k3ctl(*planning, "--out", str(out))
    assert ran.code == 0, ran.err
    placed = read_map(out)
    in_force(home, placed, str(out), costs=False)
    return placed


def test_traffic_of_the_plan_is_no_drift(k3ctl: K3ctl, planned: PlacementMap, streams: str) -> None:
    ran = k3ctl("placement", "drift", streams, "--json", "--detailed-exitcode")
    document = ran.document
    assert (ran.code, document["schema"]) == (0, "k3ctl.placement-drift/1")
    assert document["verdict"] == "none"
    assert document["seen"]["tokens"] == document["expected"]["tokens"] == 8192
    assert document["expected"]["policy"] == "layer-balanced"
    for tier in document["tiers"]:
        assert tier["expected"] == pytest.approx(tier["seen"])
    assert document["divergence"]["bits"] == 0.0
    assert document["gain"]["provenance"] == "modelled"
    assert {cost["provenance"] for cost in document["gain"]["costs"]} == {"measured"}


def test_other_traffic_is_drift_with_advice_and_a_map(
    k3ctl: K3ctl, planned: PlacementMap, prompts: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "again.json")
    arguments = ["placement", "drift", prompts, "--out", out]
    ran = k3ctl(*arguments, "--json", "--detailed-exitcode")
    document = ran.document
    assert ran.code == 20
    assert document["verdict"] == "drift"
    assert document["divergence"]["beyond_noise"]
    assert document["hot_sets"]["shared"] < 0.35 == document["hot_sets"]["limit"]
    hbm = document["tiers"][0]
    assert hbm["expected"] - hbm["seen"] > hbm["error"]
    gain = document["gain"]
    assert gain["share"] == pytest.approx(
        1 - gain["replanned_us"]["mean_us"] / gain["now_us"]["mean_us"]
    )
    assert gain["share"] > 0.05
    assert document["command"] == f"k3ctl placement swap {out}"
    assert document["advice"].startswith("the traffic has drifted")
    again = read_map(Path(out))
    assert again.origin is not None
    assert again.origin.tokens == document["seen"]["tokens"]
    assert k3ctl(*arguments).code == 0, "the code tells of drift only when it is asked to"

    text = k3ctl("placement", "drift", prompts).out
    assert max(len(line) for line in text.splitlines() if "k3ctl " not in line) <= 80
    assert "warning: 35.0 % or less" in " ".join(text.split())
    replan = f"k3ctl placement drift {prompts} --out replanned.json && k3ctl placement swap"
    assert replan in text
    shown = k3ctl("placement", "drift", prompts, "-H", "-o", "tier,experts").out
    assert shown.splitlines()[0].split("\t")[0] == "hbm"


def test_few_tokens_give_no_advice(k3ctl: K3ctl, planned: PlacementMap, tmp_path: Path) -> None:
    ids = np.argsort(np.random.default_rng(0).random((40, 12, 64)), -1)[..., :4]
    np.savez(tmp_path / "few.npz", ids=ids, experts=64, layers=np.arange(1, 13))
    few = str(tmp_path / "few.trace")
    assert k3ctl("trace", "import", str(tmp_path / "few.npz"), few).code == 0
    ran = k3ctl("placement", "drift", few, "--json", "--detailed-exitcode")
    document = ran.document
    assert (ran.code, document["verdict"], document["command"]) == (0, "too-few", None)
    assert document["needed_tokens"] > 40
    assert "too few tokens to tell: 40 were seen" in document["advice"]
    assert (document["gain"], document["gain_missing"]) == (
        None,
        "too few tokens were seen to plan from",
    )
    assert "warning" not in k3ctl("placement", "drift", few).out
    refused = k3ctl("placement", "drift", few, "--out", str(tmp_path / "few.json"))
    assert (refused.code, (tmp_path / "few.json").exists()) == (ExitCode.FAILED, False)


def test_a_map_made_without_a_trace_says_so(k3ctl: K3ctl, home: Path, streams: str) -> None:
    pod = load_pod("embedded")
    placed = plan(range(1, 13), 64, pod.slots, load_policy("contiguous"))
    in_force(home, placed, "contiguous")
    document = k3ctl("placement", "drift", streams, "--json").document
    assert document["verdict"] == "no-origin"
    assert document["expected"] is document["divergence"] is document["hot_sets"] is None
    assert "by the policy contiguous, without a trace" in document["expected_missing"]
    assert document["gain"]["share"] > 0.05
    assert f"k3ctl placement drift {streams} --out replanned.json" in document["command"]
    assert "nothing to compare with" in k3ctl("placement", "drift", streams).out


def test_unknown_costs_leave_the_gain_out_with_a_reason(
    k3ctl: K3ctl, home: Path, planned: PlacementMap, prompts: str
) -> None:
    with StateStore.open_as_writer(home, holder="test") as store, store.transaction() as writing:
        writing.execute("DELETE FROM receipt")
    document = k3ctl("placement", "drift", prompts, "--json").document
    assert document["gain"] is None
    assert "nothing is known of what tier hbm" in document["gain_missing"]
    assert document["verdict"] == "drift"
    assert "once the tiers are measured" in document["advice"]
    assert document["command"] == (
        f"k3ctl placement measure embedded && k3ctl placement drift {prompts}"
    )
    ran = k3ctl("placement", "drift", prompts, "--out", "x.json", "--json")
    assert ran.code == ExitCode.USAGE


@pytest.mark.parametrize("costs", [True, False], ids=["costs known", "costs unknown"])
def test_the_command_it_names_runs(
    k3ctl: K3ctl, home: Path, prompts: str, tmp_path: Path, monkeypatch, costs: bool
) -> None:
    """Step by step as printed, in whatever directory; what needs a pod is only parsed."""
    monkeypatch.chdir(tmp_path)
    pod = load_pod("embedded")
    placed = plan(range(1, 13), 64, pod.slots, load_policy("contiguous"))
    in_force(home, placed, "contiguous", costs=costs)
    command = k3ctl("placement", "drift", prompts, "--json").document["command"]
    steps = [shlex.split(step) for step in command.split(" && ")]
    assert [step[2] for step in steps] == (["drift", "swap"] if costs else ["measure", "drift"])
    for program, *words in steps:
        assert program == "k3ctl"
        if words[1] == "drift":
            ran = k3ctl(*words)
            assert ran.code == 0, ran.err
        else:
            assert k3ctl(*words, "--help").code == 0
    if costs:
        assert read_map(tmp_path / steps[1][-1]).origin is not None
    else:
        assert load_pod(steps[0][-1], home).slots == pod.slots


def test_commands_are_about_the_home_that_was_named(
    k3ctl: K3ctl, home: Path, prompts: str, tmp_path: Path, monkeypatch
) -> None:
    pod = load_pod("embedded")
    in_force(home, plan(range(1, 13), 64, pod.slots, load_policy("contiguous")), "contiguous")
    monkeypatch.setenv("K3_HOME", str(tmp_path / "another"))
    monkeypatch.chdir(tmp_path)
    found = k3ctl("placement", "drift", prompts, "--home", str(home), "--json").document
    steps = found["command"].split(" && ")
    assert all(step.startswith(f"k3ctl --home {home} placement ") for step in steps)
    assert k3ctl(*shlex.split(steps[0])[1:]).code == 0


def test_a_pod_of_other_machines_is_not_told_to_measure(
    k3ctl: K3ctl, home: Path, prompts: str
) -> None:
    pod = load_pod("station-8-sparks")
    placed = plan(range(1, 13), 64, pod.slots, load_policy("contiguous"))
    with StateStore.open_as_writer(home, holder="test") as store:
        nodes = msgspec.to_builtins(msgspec.structs.replace(pod, costs=()))
        store.record_pod(pod.name, pod.digest, nodes)
        store.record_placement_map(placed.epoch, placed.digest, "contiguous", placed.to_json())
    document = k3ctl("placement", "drift", prompts, "--json").document
    assert document["gain"] is None
    assert document["command"] is None
    assert "what a replanned one gains is unknown" in document["advice"]


def test_what_cannot_be_is_one_sentence(
    k3ctl: K3ctl, home: Path, planned: PlacementMap, streams: str, tmp_path: Path
) -> None:
    other = str(tmp_path / "other.trace")
    ids = np.argsort(np.random.default_rng(0).random((40, 2, 16)), -1)[..., :2]
    np.savez(tmp_path / "other.npz", ids=ids, experts=16, layers=np.arange(2))
    assert k3ctl("trace", "import", str(tmp_path / "other.npz"), other).code == 0
    drift = ["placement", "drift"]
    for arguments, code, sentence in (
        ([*drift, "/nowhere/t"], ExitCode.NOT_FOUND, "there is no trace"),
        ([*drift, streams, "--since", "60"], ExitCode.USAGE, "--since is of live traffic"),
        ([*drift], ExitCode.UNREACHABLE, "no Station runs"),
        ([*drift, other], ExitCode.USAGE, "the traffic is of 2 of 16"),
        ([*drift, streams, "--hot", "9999"], ExitCode.USAGE, "a hot set of 9999 experts of 768"),
        ([*drift, streams, "--since", "0"], ExitCode.USAGE, "0"),
        ([*drift, "--home", str(tmp_path / "empty")], ExitCode.NOT_FOUND, ""),
    ):
        ran = k3ctl(*arguments, "--json")
        assert (ran.code, ran.out) == (code, ""), (arguments, ran.err)
        assert sentence in ran.error["message"]


def test_the_plan_of_a_later_swap_is_what_counts(planned: PlacementMap) -> None:
    """A swap's map has the origin of the map that was wanted, in every wave."""
    from k3d.placement.swap_plan import plan_swap

    pod = load_pod("embedded")
    blind = plan(range(1, 13), 64, pod.slots, load_policy("contiguous"))
    there = plan_swap(blind, planned, pod.slots, 2)
    assert {wave.placed.origin for wave in there.waves} == {planned.origin}
    back = plan_swap(there.final, replace(blind, epoch=3), pod.slots, 4)
    assert back.final.origin is None
