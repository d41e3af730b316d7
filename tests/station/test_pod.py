"""A pod of real processes: same tokens however it is cut, and what happens when a node fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3d.model.checkpoint import Checkpoint
from k3d.store.home import read_run_file
from tests.station.conftest import GOLDEN, RunningPod, write_pod

PROMPT = json.loads((GOLDEN / "golden.json").read_text())["prompt"]
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "top_k": 40, "seed": 7}

Start = Callable[..., RunningPod]


@pytest.fixture(scope="session")
def expected(tiny_model: Any) -> dict[str, list[int]]:
    """Greedy and sampled tokens of the engine with every expert in one local tier."""
    from k3d.engine.engine import Engine
    from k3d.engine.offline import OfflineModel
    from k3d.engine.request import Request, Sampling, TokenEvent

    offline = OfflineModel(tiny_model, "bf16", 16)
    tokens = {}
    for name, sampling in (("greedy", Sampling()), ("sampled", Sampling(**SAMPLED))):
        engine = Engine(offline.model, offline.experts, 16)
        engine.submit(Request(name, tuple(PROMPT), 24, sampling))
        tokens[name] = []
        while not engine.idle:
            tokens[name] += [e.token for e in engine.step() if isinstance(e, TokenEvent)]
    return tokens


@pytest.mark.parametrize(
    ("sparks", "flags"),
    [
        (1, ()),
        (2, ("--transport", "tcp", "--placement", "contiguous", "--chunk", "3")),
        (4, ("--transport", "shm", "--placement", "all-spark", "--chunk", "13")),
        (2, ("--transport", "inproc", "--placement", "all-grace", "--chunk", "1")),
    ],
)
def test_tokens_do_not_depend_on_how_the_pod_is_cut(
    start_pod: Start, expected: dict[str, list[int]], sparks: int, flags: tuple[str, ...]
) -> None:
    pod = start_pod(sparks, *flags)
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24) == expected["greedy"]
    assert pod.ids(prompt_ids=PROMPT, max_tokens=24, **SAMPLED) == expected["sampled"]


def test_status_counts_hops_and_tokens(start_pod: Start) -> None:
    pod = start_pod(2)
    pod.ids(prompt_ids=PROMPT, max_tokens=24)
    pod.wait("the count of the request", lambda: pod.status()["requests"]["finished"] == 1)
    status = pod.status()
    assert status["state"] == "healthy"
    assert status["provenance"] == "measured"
    assert [node["name"] for node in status["nodes"]] == ["station", "spark-1", "spark-2"]
    assert all(node["state"] == "healthy" and node["simulated"] for node in status["nodes"])
    shares = [tier["hit_share"] for tier in status["tiers"]]
    assert sum(shares) == pytest.approx(1.0, abs=0.01)
    assert all(tier["hop_us"]["p50"] > 0 for tier in status["tiers"] if tier["hit_share"])
    assert status["tokens_per_s"]["decode"] > 0


class Streaming:
    """One answer being streamed in a thread."""

    def __init__(self, pod: RunningPod, tokens: int) -> None:
        self.lines: list[dict[str, Any]] = []
        self._pod = pod
        self._thread = threading.Thread(target=self._run, args=(tokens,))
        self._thread.start()

    def _run(self, tokens: int) -> None:
        self.lines += []
        for line in self._pod.stream(prompt_ids=PROMPT, max_tokens=tokens):
            self.lines.append(line)

    def ids(self) -> list[int]:
        return [line["id"] for line in self.lines if line.get("id") is not None]

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_a_killed_spark_degrades_the_pod_and_its_restart_resumes_the_stream(
    start_pod: Start,
) -> None:
    pod = start_pod(2)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=120)
    streaming = Streaming(pod, 120)
    pod.wait("the stream", lambda: len(streaming.lines) > 20)
    pod.kill("spark-2")
    pod.wait_state("degraded")
    status = pod.status()
    assert "spark-2" in status["reason"]
    assert [n["state"] for n in status["nodes"]] == ["healthy", "healthy", "down"]
    pod.processes["spark-2"].wait()
    pod.start("spark-2")
    streaming.join()
    assert streaming.lines[-1]["type"] == "done"
    assert streaming.ids() == wanted
    pod.wait_state("healthy")


def test_a_spark_that_stays_away_ends_the_stream_with_its_name(start_pod: Start) -> None:
    pod = start_pod(2)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=120)
    streaming = Streaming(pod, 120)
    pod.wait("the stream", lambda: len(streaming.lines) > 20)
    pod.kill("spark-1")
    streaming.join()
    last = streaming.lines[-1]
    assert (last["type"], last["node"], last["code"]) == ("error", "spark-1", 3)
    assert "spark-1" in last["message"]
    assert streaming.ids() == wanted[: len(streaming.ids())]


def test_a_stalled_spark_degrades_the_pod_and_rejoins(start_pod: Start) -> None:
    pod = start_pod(2)
    wanted = pod.ids(prompt_ids=PROMPT, max_tokens=120)
    streaming = Streaming(pod, 120)
    pod.wait("the stream", lambda: len(streaming.lines) > 20)
    pod.kill("spark-2", signal.SIGSTOP)
    pod.wait_state("degraded")
    pod.kill("spark-2", signal.SIGCONT)
    streaming.join()
    assert streaming.lines[-1]["type"] == "done"
    assert streaming.ids() == wanted


def test_a_spark_of_another_model_is_refused_by_name(start_pod: Start) -> None:
    pod = start_pod(2)
    pod.kill("spark-2")
    pod.processes["spark-2"].wait()
    pod.start("spark-2", "--model-digest", "ab" * 32)

    def refused() -> bool:
        return pod.status()["nodes"][2]["link"] == "refused"

    pod.wait("the refusal", refused)
    reason = pod.status()["nodes"][2]["reason"]
    assert "spark-2" in reason
    assert "abababab" in reason


def test_a_station_with_another_secret_is_refused(start_pod: Start) -> None:
    pod = start_pod(1)
    pod.kill("station", signal.SIGTERM)
    pod.processes["station"].wait()
    (pod.home / "pod.secret").write_text("cd" * 32)
    pod.start("station")
    pod.wait("the Station", lambda: read_run_file(pod.home, "station") is not None)
    pod.wait("the refusal", lambda: pod.status()["nodes"][1]["link"] == "refused")
    assert "secret" in pod.status()["nodes"][1]["reason"]


def test_a_restarted_station_finds_its_sparks_still_filled(start_pod: Start) -> None:
    pod = start_pod(2)
    before = pod.ids(prompt_ids=PROMPT, max_tokens=8)
    pod.kill("station")
    pod.processes["station"].wait()
    pod.start("station")
    pod.wait_state("healthy")
    assert pod.ids(prompt_ids=PROMPT, max_tokens=8) == before
    assert "still holds" in pod.log("station")


def test_concurrent_requests_share_turns_and_keep_their_tokens(
    start_pod: Start, expected: dict[str, list[int]]
) -> None:
    pod = start_pod(2)
    streams = [Streaming(pod, 24) for _ in range(4)]
    for stream in streams:
        stream.join()
    assert [stream.ids() for stream in streams] == [expected["greedy"]] * 4


def flip_last_record(pod: RunningPod) -> None:
    """Damage layer 8 expert 15 in the staged bank of a stopped Station."""
    pod.kill("station", signal.SIGTERM)
    pod.processes["station"].wait()
    (bank,) = (pod.home / "banks").glob("*.bank")
    raw = bytearray(bank.read_bytes())
    raw[-5] ^= 4
    bank.write_bytes(raw)


def test_a_flipped_bit_in_a_local_tier_ends_the_station_by_name(start_pod: Start) -> None:
    pod = start_pod(1, "--transport", "inproc")
    flip_last_record(pod)
    assert pod.start("station", "--placement", "all-hbm").wait(30) == 1
    assert "layer 8 expert 15" in pod.log("station")
    assert "Traceback" not in pod.log("station")


def test_a_flipped_bit_in_the_spark_tier_is_never_sent(start_pod: Start) -> None:
    pod = start_pod(1, "--transport", "inproc")
    flip_last_record(pod)
    pod.start("station", "--transport", "inproc", "--placement", "all-spark")
    pod.wait("the Station", lambda: read_run_file(pod.home, "station") is not None)
    pod.wait("the refusal", lambda: pod.status()["nodes"][1]["link"] == "refused")
    status = pod.status()
    assert status["state"] == "degraded"
    assert "layer 8 expert 15" in status["reason"]
    lines = list(pod.stream(prompt_ids=PROMPT, max_tokens=4))
    assert [(line["type"], line["code"], line["node"]) for line in lines] == [("error", 5, None)]
    assert "layer 8 expert 15" in lines[0]["message"]
    assert pod.log("station").count("is refused") == 1


def test_a_weight_that_decayed_ends_the_station_by_name(
    start_pod: Start, tmp_path: Path, tiny_model: Path
) -> None:
    pod = start_pod(1, "--transport", "inproc")
    pod.kill("station", signal.SIGTERM)
    pod.processes["station"].wait()
    folder = tmp_path / "decayed" / tiny_model.name
    shutil.copytree(tiny_model, folder)  # with the times of its files
    entry = Checkpoint(folder).entry("lm_head.weight")
    stat, raw = entry.path.stat(), bytearray(entry.path.read_bytes())
    raw[entry.offset + 8] ^= 1
    entry.path.write_bytes(raw)
    os.utime(entry.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert Checkpoint(folder).digest == Checkpoint(tiny_model).digest, "its samples miss the bit"
    write_pod(pod.description, folder, 1)
    assert pod.start("station", "--transport", "inproc").wait(30) == 1
    assert "lm_head.weight of shard" in pod.log("station")
    assert "has changed since its bank was built" in pod.log("station")


def test_a_tokenizer_of_another_model_is_refused(
    tmp_path: Path, home: Path, tiny_model: Path
) -> None:
    folder = tmp_path / "mixed"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    config["eos_token_id"] = config["text_config"]["eos_token_id"] = 257
    (folder / "config.json").write_text(json.dumps(config))
    pod = RunningPod(home, write_pod(tmp_path / "pod.toml", folder, 1))
    try:
        assert pod.start("station", "--transport", "inproc").wait(30) == 1
        assert "token 257, its tokenizer with 258" in pod.log("station")
    finally:
        pod.close()


def test_a_port_in_use_is_one_sentence(start_pod: Start) -> None:
    pod = start_pod(1)
    port = read_run_file(pod.home, "station").http_port  # type: ignore[union-attr]
    text = pod.description.read_text()
    pod.description.write_text(
        text.replace('role = "station"', f'role = "station"\nhttp_port = {port}')
    )
    process = pod.start("station")
    assert process.wait(30) == 1
    assert f"port {port}" in pod.log("station")
    assert "Traceback" not in pod.log("station")
