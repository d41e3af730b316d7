"""k3ctl placement: plans, simulations side by side, where costs are from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from k3ctl.client.pod_run import PodRun, pod_meant
from k3d.errors import ExitCode
from k3d.placement.pod import load_pod
from k3d.placement.policy import load_policy, plan, read_map
from k3d.placement.policy_files import find_policy
from k3d.store.state import StateStore
from k3d.store.telemetry import HopRollup, TelemetryStore
from tests.ctl.conftest import K3ctl

HELDOUT = str(Path(__file__).resolve().parents[2] / "banks" / "k3-mini" / "heldout.npz")
COSTS = {
    "hbm": {"call_us": 10.0, "expert_us": 3.0},
    "rtx": {"call_us": 90.0, "expert_us": 10.0},
    "grace": {"call_us": 10.0, "expert_us": 48.0},
    "spark": {"call_us": 73.0, "expert_us": 9.4, "whole_us": 77.0},
}


@pytest.fixture
def trace(k3ctl: K3ctl, tmp_path: Path) -> str:
    path = str(tmp_path / "trace")
    assert k3ctl("trace", "import", HELDOUT, path).code == 0
    return path


@pytest.fixture
def receipt(home: Path) -> str:
    """The id of a receipt of the embedded pod's costs, after one of another pod's."""
    store = StateStore.open_as_writer(home, holder="test")
    for pod in ("other", "embedded"):
        kept = store.record_receipt(
            "tier-costs",
            provenance="measured",
            command="",
            figures={"pod": pod, "sparks": 4, "tiers": COSTS},
            environment={},
        )
    store.close()
    return kept


def test_a_plan_is_written_shown_and_simulated(
    k3ctl: K3ctl, trace: str, receipt: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "map.json")
    ran = k3ctl("placement", "plan", "--policy", "optimised", "--trace", trace, "--out", out,
                "--json")  # fmt: skip
    document = ran.document
    assert document["schema"] == "k3ctl.placement-plan/1"
    assert sum(document["counts"].values()) == 768
    assert document["token_provenance"] == "modelled"
    assert {cost["source"] for cost in document["costs"]} == {f"receipt {receipt}"}
    assert {cost["provenance"] for cost in document["costs"]} == {"measured"}
    placed = read_map(Path(out))
    assert placed.digest == document["digest"]
    again = plan(placed.layers, 64, load_pod("embedded").slots, load_policy(out))
    assert again.digest == placed.digest

    found = k3ctl("placement", "simulate", out, "contiguous", "--trace", trace, "--station-us",
                  "400", "--json").document  # fmt: skip
    assert (found["schema"], found["provenance"]) == ("k3ctl.placement-simulate/1", "modelled")
    ours, contiguous = found["maps"]
    assert ours["token_us"]["mean_us"] == pytest.approx(document["token_us"]["mean_us"])
    assert ours["token_us"]["mean_us"] < contiguous["token_us"]["mean_us"]
    rate = 1e6 / (ours["token_us"]["mean_us"] + 12 * 400)
    assert ours["tokens_per_s"] == pytest.approx(rate)
    assert found["station_provenance"] == "assumed"


def test_text_fits_and_is_ascii_where_it_must_be(
    k3ctl: K3ctl, k3ctl_process: K3ctl, trace: str, receipt: str
) -> None:
    arguments = ["placement", "simulate", "contiguous", "layer-balanced", "cost-ranked"]
    for ran in (
        k3ctl(*arguments, "--trace", trace, "--station-us", "400"),
        k3ctl("placement", "plan", "--policy", "hot-cold", "--trace", trace),
    ):
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= 80
        assert "modelled" in ran.out
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain = k3ctl_process(*arguments, "--trace", trace, env=env).out
    assert plain.isascii()
    assert "####" in plain


def test_costs_are_measured_else_of_hops_else_described(
    k3ctl: K3ctl, trace: str, home: Path
) -> None:
    simulate = ["placement", "simulate", "layer-balanced", "--trace", trace, "--json"]
    ran = k3ctl(*simulate)
    assert ran.code == ExitCode.USAGE
    assert "nothing is known of what tier hbm" in ran.error["message"]
    assert "k3ctl placement measure embedded" in ran.error["hint"]

    pod = load_pod("embedded")
    placed = plan(range(1, 13), 64, pod.slots, load_policy("layer-balanced"))
    store = StateStore.open_as_writer(home, holder="test")
    store.record_pod(pod.name, pod.digest, {})
    store.record_placement_map(1, placed.digest, "layer-balanced", placed.to_json())
    telemetry = TelemetryStore.open_as_writer(home)
    telemetry.record(
        hops=[HopRollup(4_000_000_000, tier, "station", 100, 9, 120, 200, 100, 8) for tier in COSTS]
    )
    telemetry.close()
    store.close()
    path = home / "in-force.json"
    path.write_bytes(placed.to_json())
    document = k3ctl(*simulate[:2], str(path), *simulate[3:]).document
    (found,), costs = document["maps"], document["costs"]
    assert {cost["provenance"] for cost in costs} == {"modelled"}
    assert {cost["source"] for cost in costs} == {"100 hops in telemetry"}
    for cost, use in zip(costs, found["tiers"], strict=True):
        assert cost["expert_us"] * use["experts_a_call"] == pytest.approx(120, rel=0.1)


def test_a_described_cost_serves_and_says_so(k3ctl: K3ctl, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = np.argsort(rng.random((40, 92, 896)), -1)[..., :16]
    np.savez(tmp_path / "k3.npz", ids=ids, experts=896, layers=np.arange(1, 93))
    trace = str(tmp_path / "k3")
    assert k3ctl("trace", "import", str(tmp_path / "k3.npz"), trace).code == 0
    found = k3ctl("placement", "simulate", "cost-ranked", "--pod", "station-8-sparks", "--trace",
                  trace, "--spark-experts", "whole", "--json").document  # fmt: skip
    assert {cost["source"] for cost in found["costs"]} == {"pod description"}
    assert {cost["provenance"] for cost in found["costs"]} == {"reported", "modelled"}
    assert found["spark_experts"] == "whole"
    ran = k3ctl("placement", "simulate", "cost-ranked", "--trace", trace, "--json")
    assert ran.code == ExitCode.USAGE
    assert "the model of pod embedded has 12 of 64" in ran.error["message"]


def test_what_cannot_be_is_one_sentence(
    k3ctl: K3ctl, trace: str, receipt: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(plan(range(1, 3), 64, {"hbm": 128}, load_policy("all-hbm")).to_json())
    damaged = tmp_path / "damaged.json"
    damaged.write_bytes(other.read_bytes()[:-20])
    pod = tmp_path / "small.toml"
    text = Path(str(load_policy_file("embedded"))).read_text()
    pod.write_text(text.replace("slots = 768", "slots = 100"))
    plan_ = ["placement", "plan", "--trace", trace]
    simulate = ["placement", "simulate", "--trace", trace]
    for arguments, code, sentence in (
        ([*plan_, "--policy", "nope"], ExitCode.NOT_FOUND, "no placement policy named 'nope'"),
        ([*plan_, "--policy", "hot-cold", "--out", "m.txt"], ExitCode.USAGE, "end in .json"),
        ([*plan_, "--policy", "hot-cold", "--out", "/nowhere/m.json"], ExitCode.FAILED, "written"),
        ([*plan_, "--policy", "hot-cold", "--pod", str(pod)], ExitCode.USAGE, "short of 368 slots"),
        ([*plan_, "--policy", "optimised", "--pod", str(pod)], ExitCode.USAGE, "short of 368"),
        ([*plan_[:-1], "/nowhere/t", "--policy", "hot-cold"], ExitCode.NOT_FOUND, "no trace"),
        ([*simulate, "/nowhere/m.json"], ExitCode.NOT_FOUND, "no placement map"),
        ([*simulate, str(other)], ExitCode.USAGE, "places 2 layers of 64"),
        ([*simulate, str(damaged)], ExitCode.USAGE, "damaged.json"),
        ([*simulate, "hot-cold", "--rows", "300"], ExitCode.USAGE, "300 is not in the range"),
    ):
        ran = k3ctl(*arguments, "--json")
        assert (ran.code, ran.out) == (code, ""), sentence
        assert sentence in ran.error["message"]


def load_policy_file(name: str) -> Path:
    from k3d.placement.policy_files import find_policy

    return find_policy("pods", name)


def test_measuring_asks_k3d_and_keeps_a_receipt(
    k3ctl: K3ctl, trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {
        "schema": "k3d.bench-tiers/1", "provenance": "measured", "simulated": True,
        "pod": "embedded", "sparks": 4, "contention": 0.62, "environment": {"cores": 2},
        "tiers": {t: {**c, "hops": 9, "p50_us": 1.0, "residual": 0.1} for t, c in COSTS.items()},
    }  # fmt: skip
    program = tmp_path / "k3d"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(figures)}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("K3_DAEMON", str(program))
    ran = k3ctl("placement", "measure", "--json")
    assert (ran.code, ran.document["schema"]) == (0, "k3d.bench-tiers/1")
    assert ran.document["receipt"]
    shown = k3ctl("placement", "measure").out
    assert "UNEXPLAINED" in shown
    assert "contention 62.0 %" in shown
    planned = k3ctl(
        "placement", "plan", "--trace", trace, "--policy", "cost-ranked", "--json"
    ).document
    assert planned["contention"] == 0.62
    program.write_text("#!/bin/sh\necho 'k3d bench: no pod' >&2\nexit 10\n")
    failed = k3ctl("placement", "measure")
    assert failed.code == ExitCode.NOT_FOUND
    assert "k3d bench tiers failed" in failed.err


def test_the_pod_that_runs_here_is_meant(k3ctl: K3ctl, home: Path, trace: str) -> None:
    plan_ = ["placement", "plan", "--trace", trace, "--policy", "hot-cold", "--json"]
    measured = {"pod": "embedded-2", "sparks": 2, "tiers": COSTS}
    kept = {"provenance": "measured", "command": "", "environment": {}}
    StateStore.open_as_writer(home, holder="test").record_receipt(
        "tier-costs", figures=measured, **kept
    )
    path = find_policy("pods", "embedded-2", home)
    run = PodRun.of(load_pod("embedded-2", home), path)
    assert pod_meant(home, None) == "embedded"
    run.write(home)
    assert k3ctl(*plan_).document["pod"] == "embedded-2"
    other = k3ctl(*plan_, "--pod", "embedded")
    assert "of pod embedded costs" in other.err
    assert k3ctl("bank", "plan", "--json").document["pod"] == "embedded-2"
