"""Drift and alerts of a running pod: what it routes, what it tells, and that tokens stay."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3ctl.cli.main import run
from k3d.placement.trace import read_trace
from k3d.store.state import StateReader
from tests.station.conftest import RunningPod, write_pod
from tests.station.swapping import PROMPT, swap

ALERTS = """
schema = "k3-alerts/1"
every_s = 1
[drift]
every_s = 1
divergence_bits = 0.1
[[rule]]
watch = "drift"
clear_s = 86400
[[rule]]
watch = "tier-p99"
tier = "hbm"
above_us = 0
[[rule]]
watch = "disk"
below_bytes = 9_000_000_000_000_000_000
severity = "note"
node = "nowhere"
"""


@pytest.fixture
def pod(tmp_path: Path, home: Path, tiny_model: Path) -> Iterator[RunningPod]:
    """Two sparks inside the Station's process, and alerts of their own."""
    alerts = tmp_path / "alerts.toml"
    alerts.write_text(ALERTS)
    description = write_pod(tmp_path / "pod.toml", tiny_model, 2)
    text = description.read_text()
    description.write_text(text.replace("chunk = 16", f'chunk = 16\nalerts = "{alerts}"'))
    running = RunningPod(home, description)
    running.start("station", "--transport", "inproc")
    try:
        running.wait_state("healthy")
        yield running
    finally:
        running.close()


def get(pod: RunningPod, path: str) -> Any:
    with pod.call(path) as response:
        return json.load(response)


def use(pod: RunningPod, query: str = "") -> dict[str, Any]:
    return get(pod, f"/placement/use{query}")


def test_live_routing_is_counted_since_the_map_came_and_lately(pod: RunningPod) -> None:
    begun = use(pod)
    assert (begun["schema"], begun["provenance"]) == ("k3d.placement-use/1", "measured")
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=20)
    seen = use(pod)
    rows = seen["rows"] - begun["rows"]
    assert rows >= len(PROMPT) + len(wanted) - 1
    for layer in seen["uses"]:
        assert sum(layer) == seen["rows"] * seen["top_k"]
    assert len(seen["layers"]) == len(seen["uses"])
    assert use(pod, "?since_s=3600")["rows"] == seen["rows"]
    swap(pod, "all-grace")
    assert use(pod)["rows"] == 0, "what came before the turn is not the new map's"
    assert use(pod, "?since_s=3600")["rows"] == 0
    assert pod.ids(prompt_ids=PROMPT, max_tokens=20) == wanted
    assert use(pod)["rows"] >= rows - len(PROMPT)


def test_bad_times_are_one_sentence(pod: RunningPod) -> None:
    import urllib.error

    for text in ("x", "-1", "0", "nan", "inf"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            use(pod, f"?since_s={text}")
        assert json.load(caught.value)["code"] == 2


def test_a_map_planned_from_a_trace_is_told_from_other_traffic(
    pod: RunningPod, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    def k3ctl(*words: str, code: int = 0) -> Any:
        assert run([*words, "--json", "--home", str(pod.home)]) == code
        captured = capsys.readouterr()
        return json.loads(captured.out if code in (0, 20) else captured.err.splitlines()[-1])

    costs(pod)
    capsys.readouterr()
    blind = k3ctl("placement", "drift")
    assert blind["verdict"] == "no-origin"
    assert blind["seen"]["tokens"] == 0
    assert "no token was seen yet" in blind["advice"]
    assert blind["command"].endswith(" && k3ctl placement drift")
    trace, planned = str(tmp_path / "live.trace"), str(tmp_path / "planned.json")
    assert ask_trace(pod, trace)["state"] == "recording"
    draw = random.Random(seed)
    for _ in range(8):
        pod.ids(prompt_ids=draw.choices(range(256), k=80), max_tokens=2)
    with pod.call("/trace/stop", {}) as response:
        tokens = json.load(response)["tokens"]
    assert read_trace(Path(trace)).tokens == tokens
    k3ctl("placement", "plan", "--policy", "layer-balanced", "--pod", str(pod.description),
          "--trace", trace, "--out", planned)  # fmt: skip
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=20)
    done = k3ctl("placement", "swap", planned, "-q")
    assert done["swap"]["state"] == "done"
    none = k3ctl("placement", "drift")
    assert (none["verdict"], none["seen"]["tokens"]) == ("too-few", 0), "all was of the map before"
    assert (none["advice"], none["command"]) == (blind["advice"], blind["command"])
    out = tmp_path / "again.json"
    refused = k3ctl("placement", "drift", "--since", "600", "--out", str(out), code=10)
    assert "no token was seen to plan from" in refused["message"]
    assert " chat " in refused["hint"]
    assert refused["hint"].endswith(f"--since 600 --out {out}")
    assert not out.exists()
    assert pod.ids(prompt_ids=PROMPT, max_tokens=20) == wanted
    with StateReader.open(pod.home) as reader:
        stored = reader.placement_map()
    assert stored is not None
    assert json.loads(stored.map_json)["origin"]["tokens"] == tokens

    few = k3ctl("placement", "drift")
    assert 0 < few["seen"]["tokens"] < 40
    assert (few["verdict"], few["command"]) == ("too-few", None)
    assert few["expected"]["tokens"] == tokens
    for first in range(8):  # the same token again and again is other traffic
        pod.ids(prompt_ids=[first, *[9] * 80], max_tokens=2)
    document = k3ctl("placement", "drift", "--detailed-exitcode", code=20)
    assert document["verdict"] == "drift"
    assert document["seen"]["provenance"] == "measured"
    assert document["gain"]["traffic"] == "made up from counts"

    def told() -> list[dict[str, Any]]:
        with StateReader.open(pod.home) as reader:
            events = reader.events(limit=1000)
        return [event.detail or {} for event in events if event.kind == "alert"]

    pod.wait("the alert", lambda: any(each["watch"] == "drift" for each in told()))
    alerts = get(pod, "/alerts")["alerts"]
    assert [each["subject"] for each in alerts if each["command"] == "k3ctl placement drift"] == [
        "placement"
    ]
    pod.wait(
        "the attention list",
        lambda: any(a["subject"] == "placement" for a in get(pod, "/frame")["attention"]),
    )
    raised = [each for each in told() if each["watch"] == "tier-p99"]
    assert len([each for each in raised if each["raised"]]) == 1, "told once, not at every look"
    assert "Traceback" not in pod.log("station")


def test_a_bad_alert_policy_stops_the_start_with_one_sentence(
    pod: RunningPod, tmp_path: Path
) -> None:
    (tmp_path / "alerts.toml").write_text('schema = "k3-alerts/1"\nevery_s = 0\n')
    pod.close()
    process = pod.start("station", "--transport", "inproc")
    assert process.wait(30) == 2
    assert "alerts.toml: every_s: Expected" in pod.log("station").splitlines()[-1] + "".join(
        pod.log("station").splitlines()[-2:]
    )


def ask_trace(pod: RunningPod, path: str) -> dict[str, Any]:
    with pod.call("/trace/record", {"path": path}) as response:
        return json.load(response)


def costs(pod: RunningPod) -> None:
    """A receipt of this pod's costs, kept by its Station."""
    tiers = {"hbm": 3.0, "rtx": 10.0, "grace": 48.0, "spark": 9.4}
    figures = {
        "pod": "tiny", "sparks": 2,
        "tiers": {tier: {"call_us": 10.0, "expert_us": each} for tier, each in tiers.items()},
    }  # fmt: skip
    body = {
        "kind": "tier-costs", "provenance": "measured", "command": "", "figures": figures,
        "environment": {},
    }  # fmt: skip
    with pod.call("/receipts", body) as response:
        assert json.load(response)["id"]
