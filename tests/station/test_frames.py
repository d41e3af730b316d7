"""Frames of a running pod, its lanes, events and expert use, over the Station's routes."""

from __future__ import annotations

import json
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from k3d.store.frame import Frame, decode
from k3d.store.frame_history import FrameHistory
from k3d.store.use_log import read_uses
from tests.station.conftest import RunningPod

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
TOKENS = 30


def frame_of(pod: RunningPod) -> Frame:
    with pod.call("/frame") as response:
        return decode(response.read())


def document(pod: RunningPod, path: str) -> dict[str, Any]:
    with pod.call(path) as response:
        return json.load(response)


def refusal(pod: RunningPod, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        pod.call(path, body)
    return json.load(caught.value)


def wait_frame(pod: RunningPod, after: int) -> Frame:
    """The first frame with a higher number."""
    pod.wait("another frame", lambda: frame_of(pod).sequence > after)
    return frame_of(pod)


def test_a_frame_says_what_the_pod_is(inproc_pod: RunningPod) -> None:
    inproc_pod.wait("a healthy frame", lambda: frame_of(inproc_pod).state == "healthy")
    status, frame = inproc_pod.status(), frame_of(inproc_pod)
    for key in ("pod", "version", "epoch", "transport", "placement"):
        assert getattr(frame, key) == status[key], key
    assert frame.model_digest == status["model"]["digest"]
    assert [node.name for node in frame.nodes] == [node["name"] for node in status["nodes"]]
    assert [node.state for node in frame.nodes] == ["healthy"] * 3
    assert {node.version for node in frame.nodes} == {status["version"]}
    assert [tier.name for tier in frame.tiers] == [tier["name"] for tier in status["tiers"]]
    assert sum(tier.experts for tier in frame.tiers) == status["model"]["experts"]


def test_frames_follow_each_other_and_count_tokens(inproc_pod: RunningPod) -> None:
    first = frame_of(inproc_pod)
    inproc_pod.ids(prompt_ids=PROMPT, max_tokens=TOKENS)
    frames = [first]
    while frames[-1].decode_tokens < first.decode_tokens + TOKENS - 1:
        frames.append(wait_frame(inproc_pod, frames[-1].sequence))
    last = frames[-1]
    assert last.finished == first.finished + 1
    decoding = [each for each in frames[1:] if each.decode_tokens_per_s is not None]
    assert decoding
    for frame in decoding:
        assert frame.token_p50_us is not None
        assert frame.token_p50_us > 0
        assert sum(tier.hops for tier in frame.tiers) > 0
        spark = frame.nodes[1]
        assert spark.hops > 0
        assert (spark.hop_p99_us or 0) >= (spark.compute_us or 0) > 0
    quiet = wait_frame(inproc_pod, last.sequence)
    while any(tier.hops for tier in quiet.tiers):  # what a pass costs is measured once, when idle
        quiet = wait_frame(inproc_pod, quiet.sequence)
    assert quiet.decode_tokens_per_s is None, "nothing was decoded in its interval"
    assert [tier.hop_p50_us for tier in quiet.tiers] == [None] * len(quiet.tiers)
    assert all(after.at_ms > before.at_ms for before, after in pairwise(frames))


def test_experts_are_counted_by_the_rows_that_went_through_them(inproc_pod: RunningPod) -> None:
    before = document(inproc_pod, "/experts")
    inproc_pod.ids(prompt_ids=PROMPT, max_tokens=TOKENS)
    after = document(inproc_pod, "/experts")
    rows = after["rows"] - before["rows"]
    assert 0 < rows <= len(PROMPT) + TOKENS - 1, "a prefix that was reused is not run again"
    for layer_before, layer_after in zip(before["uses"], after["uses"], strict=True):
        assert sum(layer_after) - sum(layer_before) == rows * after["top_k"]
    assert len(after["tiers"]) == len(after["layers"]) == len(after["uses"])
    assert {len(row) for row in after["tiers"]} == {after["experts"]}
    assert max(max(row) for row in after["tiers"]) < len(after["tier_names"])


def test_a_lane_is_listed_and_cancelled(inproc_pod: RunningPod) -> None:
    assert document(inproc_pod, "/lanes")["lanes"] == []
    ends: list[dict[str, Any]] = []

    def ask() -> None:
        stream = inproc_pod.stream(prompt_ids=PROMPT, max_tokens=900, min_tokens=900)
        ends.append(list(stream)[-1])

    thread = threading.Thread(target=ask)
    thread.start()
    inproc_pod.wait("a lane", lambda: bool(document(inproc_pod, "/lanes")["lanes"]))
    (lane,) = document(inproc_pod, "/lanes")["lanes"]
    assert (lane["source"], lane["prompt_tokens"]) == ("chat", len(PROMPT))
    assert lane["most_tokens"] == 900
    answer = inproc_pod.call("/lanes/cancel", {"id": lane["id"]})
    assert json.load(answer)["state"] == "cancelling"
    thread.join(timeout=30)
    assert ends
    assert ends[0]["finish_reason"] == "cancelled"
    gone = refusal(inproc_pod, "/lanes/cancel", {"id": lane["id"]})
    assert gone["hint"].endswith("see those that run: k3ctl lanes")
    assert (gone["name"], lane["id"] in gone["message"]) == ("NOT_FOUND", True)
    assert refusal(inproc_pod, "/lanes/cancel", {"name": "x"})["name"] == "USAGE"


def test_events_are_read_from_a_number_on(inproc_pod: RunningPod) -> None:
    found = document(inproc_pod, "/events")["events"]
    assert any("started" in event["message"] for event in found)
    last = found[-1]["id"]
    assert document(inproc_pod, f"/events?since_id={last}")["events"] == []
    assert [e["id"] for e in document(inproc_pod, "/events?limit=1")["events"]] == [last]
    assert document(inproc_pod, "/events?node=nobody")["events"] == []
    for wrong in ("limit=0", "limit=x", "since_id=-1"):
        assert refusal(inproc_pod, f"/events?{wrong}")["name"] == "USAGE"


def test_frames_and_uses_are_there_after_the_station_ended(
    start_pod: Callable[..., RunningPod],
) -> None:
    pod = start_pod(1, "--transport", "inproc")
    pod.ids(prompt_ids=PROMPT, max_tokens=TOKENS)
    top_k = document(pod, "/experts")["top_k"]
    last = wait_frame(pod, wait_frame(pod, frame_of(pod).sequence).sequence)
    pod.processes["station"].terminate()
    pod.processes["station"].wait(timeout=30)
    with FrameHistory.open(pod.home) as history:
        assert history.at(last.at_ms) == last
        span = history.span()
        assert span is not None
        frames = history.between(*span, most=10_000)
        assert [each.sequence for each in frames] == list(range(1, len(frames) + 1))
    (uses,) = read_uses(pod.home)
    assert uses.rows == len(PROMPT) + TOKENS - 1
    assert sum(uses.counts) == uses.rows * uses.layers * top_k
    assert len(uses.counts) == uses.layers * uses.experts


def test_a_station_that_was_killed_leaves_what_it_recorded_and_goes_on(
    start_pod: Callable[..., RunningPod],
) -> None:
    pod = start_pod(1, "--transport", "inproc")
    last = wait_frame(pod, wait_frame(pod, frame_of(pod).sequence).sequence)
    pod.kill("station")
    pod.processes.pop("station").wait()
    with FrameHistory.open(pod.home) as history:
        assert history.span() is not None
        before = history.at(last.at_ms)
    assert before is not None
    assert before.sequence >= last.sequence - 1
    pod.start("station", "--transport", "inproc")
    pod.wait_state("healthy")
    wait_frame(pod, 2)
    with FrameHistory.open(pod.home) as history:
        assert history.at(last.at_ms) == before
        span = history.span()
        assert span is not None
        assert span[1] > last.at_ms


def test_metrics_of_the_pod_are_beside_the_engines(inproc_pod: RunningPod) -> None:
    url = frame_of(inproc_pod).api_url
    assert url is not None
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=30) as response:
        text = response.read().decode()
    assert 'k3_node_state{node="spark-1",state="healthy"} 1.0' in text
    assert "k3_swap_paused 0.0" in text
    assert 'k3_swap_total{result="done"} 0.0' in text
    assert 'k3_node_memory_bytes{node="station",simulated="false"}' in text
    assert "vllm:num_requests_running" in text


def test_the_stations_own_sensors_are_in_its_frame(inproc_pod: RunningPod) -> None:
    inproc_pod.wait("sensors", lambda: frame_of(inproc_pod).nodes[0].sensors is not None)
    sensors = frame_of(inproc_pod).nodes[0].sensors
    assert sensors is not None
    assert sensors.memory_bytes
    assert 0 < (sensors.memory_used_bytes or 0) < sensors.memory_bytes
    assert sensors.age_s < 30


def test_a_spark_that_hangs_delays_no_frame_and_is_told(
    start_pod: Callable[..., RunningPod],
) -> None:
    pod = start_pod(1)
    pod.wait("the spark's sensors", lambda: frame_of(pod).nodes[1].sensors is not None)
    pod.kill("spark-1", signal.SIGSTOP)
    pod.wait("the loss of the spark", lambda: frame_of(pod).nodes[1].state == "down")
    frames = [frame_of(pod)]
    for _ in range(3):
        frames.append(wait_frame(pod, frames[-1].sequence))
    last = frames[-1]
    assert last.nodes[1].sensors is not None
    assert last.nodes[1].sensors.age_s > 2, "the last good values, and how old they are"
    taken = (last.at_ms - frames[0].at_ms) / 1000
    assert sum(frame.interval_s for frame in frames[1:]) == pytest.approx(taken, abs=0.5)
    (found,) = [each for each in last.attention if each.kind == "node"]
    assert (found.severity, found.subject) == ("alert", "spark-1")
    assert found.command in ("k3ctl pod up", "k3ctl logs spark-1")
    pod.kill("spark-1", signal.SIGCONT)
    pod.wait("the spark", lambda: frame_of(pod).state == "healthy")

    def messages() -> list[str]:
        events = document(pod, "/events?node=spark-1")["events"]
        return [event["message"] for event in events if event["kind"] == "node"]

    pod.wait("its return among the events", lambda: "spark-1 is healthy again" in messages())
    assert len(messages()) >= 2, "its loss, and its return"
