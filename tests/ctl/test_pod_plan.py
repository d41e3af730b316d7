"""k3ctl pod up --dry-run: checking descriptions anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3d.errors import ExitCode
from tests.ctl.conftest import K3ctl


def test_the_real_pod_is_checked_without_any_of_it(k3ctl: K3ctl) -> None:
    ran = k3ctl("pod", "up", "station-8-sparks", "--dry-run")
    assert ran.code == 0
    assert "85,219 slots for 82,432 experts, 2,787 to spare" in ran.out
    assert "on k3-spark-8" in ran.out
    assert "memory is modelled" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_plan_as_json(k3ctl: K3ctl, pod_file: Path) -> None:
    plan = k3ctl("pod", "up", str(pod_file), "--dry-run", "--json").document
    assert plan["schema"] == "k3ctl.pod-plan/1"
    assert plan["placement_counts"] == {"hbm": 768, "spark": 0}
    assert plan["slices"] == 2
    assert [node["starts_here"] for node in plan["nodes"]] == [True, True, True]
    assert {tier["memory_provenance"] for tier in plan["tiers"]} == {"modelled"}


def test_flags_stand_in_for_keys(k3ctl: K3ctl, pod_file: Path) -> None:
    plan = k3ctl(
        "pod", "up", str(pod_file), "--dry-run", "--json",
        "--placement", "all-spark", "--transport", "tcp", "--dtype", "fp32", "--chunk", "7",
    ).document  # fmt: skip
    assert plan["placement_counts"] == {"hbm": 0, "spark": 768}
    assert (plan["transport"], plan["dtype"], plan["chunk"]) == ("tcp", "fp32", 7)
    assert [tier["memory_bytes"] for tier in plan["tiers"]] == [0, 7_680_000, 7_680_000]
    inside = k3ctl("pod", "up", str(pod_file), "--dry-run", "--json", "--transport", "inproc")
    starts = [node["starts_here"] for node in inside.document["nodes"]]
    assert starts == [True, False, False]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["nope"], ExitCode.NOT_FOUND, "no pod description named 'nope'"),
        (["/nowhere/pod.toml"], ExitCode.NOT_FOUND, "there is no file"),
        (["station-8-sparks", "--transport", "shm"], ExitCode.USAGE, "with --transport: transport"),
        (["station-8-sparks", "--placement", "all-hbm"], ExitCode.USAGE, "tier hbm is short"),
        (["station-8-sparks", "--placement", "nope"], ExitCode.NOT_FOUND, "known: all-grace"),
        (["station-8-sparks", "--chunk", "0"], ExitCode.USAGE, "'--chunk'"),
    ],
)
def test_what_is_wrong_is_said(
    k3ctl: K3ctl, arguments: list[str], code: ExitCode, sentence: str
) -> None:
    ran = k3ctl("pod", "up", "--dry-run", *arguments)
    assert ran.code == code
    assert sentence in ran.err
    assert ran.out == ""


def test_a_pod_on_other_machines_is_not_started_from_here(k3ctl: K3ctl) -> None:
    ran = k3ctl("pod", "up", "station-8-sparks")
    assert ran.code == ExitCode.REFUSED
    assert "on another machine" in ran.err
