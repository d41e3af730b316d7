"""The operator's side of it, with a real k3d: build, stage, damage, repair."""

from __future__ import annotations

import json
import os

import pytest

from k3ctl.cli.main import run
from k3d.errors import ExitCode
from tests.staging.conftest import PodHome, flip


def test_build_stage_verify_repair(
    pod_home: PodHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert os.environ["K3_HOME"] == str(pod_home.home)

    def k3ctl(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(["bank", *arguments])
        return code, capsys.readouterr().out

    pod = str(pod_home.pod)
    assert k3ctl("build", pod)[0] == ExitCode.OK
    code, out = k3ctl("stage", pod, "--json")
    assert (code, [node["error"] for node in json.loads(out)["nodes"]]) == (0, [None, None])
    victim = pod_home.banks / "spark-2" / pod_home.slice(2).name
    flip(victim, victim.stat().st_size - 5)
    code, out = k3ctl("verify", "--pod", pod)
    assert code == ExitCode.FAILED
    assert "spark-2" in out
    assert k3ctl("stage", pod)[0] == ExitCode.OK
    assert victim.read_bytes() == pod_home.slice(2).read_bytes()
    assert k3ctl("verify", "--pod", pod)[0] == ExitCode.OK
