"""k3ctl check against a real pod, with pods of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k3ctl.cli.main import run
from k3d.errors import ConfigError
from k3d.placement.pod import load_pod
from k3d.station.check_pods import cuts, read_cases
from k3d.station.options import StationOptions
from tests.station.conftest import RunningPod, write_pod


def test_tokens_do_not_depend_on_how_they_are_decoded(
    inproc_pod: RunningPod, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--home", str(inproc_pod.home), "--pod", str(inproc_pod.description), "--json"]
    assert run(["check", "--prompts", "1", "--tokens", "3", *flags]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["result"] == "pass"
    assert document["prompts_from"] == "built-in texts"
    assert document["other_logprobs"] == 0
    ways = {way["name"]: way for way in document["ways"]}
    (short,) = [way for name, way in ways.items() if name.endswith("short of memory")]
    assert short["preempted"] > 0
    (processes,) = [way for name, way in ways.items() if name.startswith("shm")]
    assert processes["answers"] == 2


def test_full_means_more_pods(tmp_path: Path) -> None:
    pod = load_pod(str(write_pod(tmp_path / "pod.toml", tmp_path, 2)), tmp_path)
    options = StationOptions("shm", "layer-balanced", "bf16", 16)
    few, many = cuts(pod, options, full=False), cuts(pod, options, full=True)
    assert {cut.transport for cut in many} == {"inproc", "shm", "tcp"}
    assert {cut.sparks for cut in many} >= {1, 2, 4, 8}
    assert len(set(many)) == len(many) > len(few)
    alone = load_pod(str(write_pod(tmp_path / "alone.toml", tmp_path, 0)), tmp_path)
    assert {cut.transport for cut in cuts(alone, options, full=True)} == {"inproc"}


def test_cases_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    for text in ("{", "[]", '{"model_digest": "x", "cases": [{"colour": 1}], "long": []}'):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"cases\.json"):
            read_cases(path)
