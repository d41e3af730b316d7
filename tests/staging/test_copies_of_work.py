"""Copies of work on banks with one request id and a real k3d: one does it, the rest say so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ctl.parallel_copies import FEW, MANY, copies, one_effect
from tests.staging.conftest import PodHome
from tests.staging.test_scrub_clear import in_force, placement_of


def work_once(made: PodHome, number: int) -> None:
    """Every verb, so many copies of it at once."""

    def once(verb: str, *arguments: str) -> dict[str, Any]:
        pod = [str(made.pod)] if verb in ("build", "stage") else ["--pod", str(made.pod)]
        return one_effect(
            copies(number, "bank", verb, *pod, *arguments, "--request-id", f"{verb}-1")
        )

    built = once("build")["banks"]
    assert {(bank["ready_before"], bank["kept"]) for bank in built} == {(False, 0)}
    assert all(bank["written"] == bank["records"] > 0 for bank in built)
    nodes = once("stage")["nodes"]
    assert all(node["kept"] == 0 < node["lacking"] == node["records"] for node in nodes)
    assert [node["error"] for node in nodes] == [None, None]
    assert once("verify")["damages"] == []
    scrubbed = once("scrub", "--share", "1")
    assert (scrubbed["rounds"], scrubbed["damages"]) == (5, [])
    in_force(made, placement_of(made, "contiguous"))
    removed = once("gc", "--yes")["files"]
    assert len([file for file in removed if file["removed"]]) == 4
    assert len(made.files()) == 1


def test_copies_of_work_have_one_effect(pod_home: PodHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    work_once(pod_home, FEW)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_fifty_copies_of_work_have_one_effect(
    pod_home: PodHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    work_once(pod_home, MANY)
