"""The Station's HTTP face: what it streams, refuses and survives."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

from k3d.store.home import read_run_file
from k3d.store.state import StateReader
from k3d.store.telemetry import read_hops, read_tokens
from tests.station.conftest import RunningPod

PROMPT = [52, 133, 217, 154]
HI = [{"role": "user", "content": "Hi"}]


def refusal(pod: RunningPod, body: Any) -> tuple[int, dict[str, Any]]:
    """Status and error document of a request that must be refused."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        pod.call("/chat", body)
    with caught.value as response:
        return response.code, json.load(response)


def test_a_chat_streams_whole_characters_and_ends_with_usage(inproc_pod: RunningPod) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    lines = list(inproc_pod.stream(messages=messages, max_tokens=6))
    assert [line["type"] for line in lines[:-1]] == ["token"] * (len(lines) - 1)
    done = lines[-1]
    assert done["type"] == "done"
    assert done["usage"]["completion_tokens"] <= 6
    assert done["timing"]["prompt_s"] > 0


def test_raw_text_is_encoded_without_specials(inproc_pod: RunningPod) -> None:
    lines = list(inproc_pod.stream(prompt="<|open|>", max_tokens=1))
    assert lines[-1]["usage"]["prompt_tokens"] == len("<|open|>")


def test_a_first_token_carries_no_decode_speed(inproc_pod: RunningPod) -> None:
    lines = list(inproc_pod.stream(prompt_ids=PROMPT, max_tokens=1))
    assert lines[-1]["timing"]["tokens_per_s"] is None


def test_the_last_line_counts_rounds_and_what_was_reused(inproc_pod: RunningPod) -> None:
    body = {"prompt_ids": PROMPT, "max_tokens": 5, "min_tokens": 5, "draft_rows": 1}
    done = list(inproc_pod.stream(**body))[-1]
    # The first token is the prompt's; the pod of this test has no drafter.
    assert (done["rounds"], done["drafted"], done["accepted"]) == (4, 0, 0)
    assert done["acceptance_length"] == 1.0
    assert done["cached_tokens"] == 0
    one = list(inproc_pod.stream(prompt_ids=PROMPT, max_tokens=1))[-1]
    assert (one["rounds"], one["acceptance_length"]) == (0, None)
    assert "synthetic_acceptance" not in done


def test_a_salt_keeps_prefixes_apart(inproc_pod: RunningPod) -> None:
    body = {"prompt_ids": PROMPT * 40, "max_tokens": 1}
    reused = [
        list(inproc_pod.stream(**body, cache_salt=salt))[-1]["cached_tokens"]
        for salt in ("mine", "mine", "yours")
    ]
    assert reused == [0, 128, 0]


def test_logprobs_come_with_the_tokens_that_were_likely(inproc_pod: RunningPod) -> None:
    lines = list(inproc_pod.stream(prompt_ids=PROMPT, max_tokens=4, logprobs=2))
    tokens = [line for line in lines if line["type"] == "token" and line["id"] is not None]
    assert len(tokens) == 4
    for line in tokens:
        (first, likeliest), (_, second) = line["top"]
        assert line["id"] == first  # greedy
        assert line["logprob"] == likeliest >= second
    assert "top" not in next(iter(inproc_pod.stream(prompt_ids=PROMPT, max_tokens=1)))


def test_the_engine_says_how_it_decodes(inproc_pod: RunningPod) -> None:
    with inproc_pod.call("/engine") as response:
        engine = json.load(response)
    assert (engine["lanes"], engine["chunk"], engine["draft_block"]) == (16, 16, None)
    assert engine["synthetic_acceptance"] is None
    assert engine["counts"]["rounds"] >= 0


def test_tokens_of_a_text(inproc_pod: RunningPod) -> None:
    with inproc_pod.call("/tokens", {"text": "ab<|open|>"}) as response:
        assert json.load(response)["ids"] == list(b"ab<|open|>")
    with pytest.raises(urllib.error.HTTPError) as caught:
        inproc_pod.call("/tokens", {"txt": "ab"})
    with caught.value as response:
        assert response.code == 400


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "no prompt"),
        ({"prompt": "a", "prompt_ids": [1]}, "prompt and prompt_ids"),
        ({"prompt": ""}, "holds no token"),
        ({"prompt_ids": [999]}, "999"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 10**7}, "context"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "top_p": 0}, "top_p"),
        ({"prompt": "a", "top_k": -2}, "top_k"),
        ({"prompt": "a", "seed": "x"}, "seed"),
        ({"prompt": "a", "colour": 1}, "colour"),
        ({"prompt": "a", "draft_rows": 0}, "draft_rows"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": -1}, "logprobs"),
        ({"prompt": "a", "min_tokens": -1}, "min_tokens"),
        ({"prompt": "a", "max_tokens": 2, "min_tokens": 3}, "min_tokens"),
        ({"prompt": "a", "cache_salt": 7}, "cache_salt"),
        ({"messages": [{"role": "king", "content": "a"}]}, "king"),
        ({"messages": []}, "messages"),
        (
            {"messages": HI, "thinking": True, "effort": "max"},
            "'thinking-effort max', which is not",
        ),
        ({"messages": HI, "thinking": True, "effort": "huge"}, "'huge' is not one"),
        ({"messages": HI, "effort": "low"}, "without thinking"),
        ({"prompt": "a", "thinking": True, "effort": "low"}, "without thinking"),
        ({"messages": [{"role": "system", "tools": [{"type": "function"}]}]}, "which is not in"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "an image"),
    ],
)
def test_a_bad_request_is_one_sentence(
    inproc_pod: RunningPod, body: dict[str, Any], word: str
) -> None:
    status, error = refusal(inproc_pod, body)
    assert (status, error["code"]) == (400, 2)
    assert word in error["message"]
    assert inproc_pod.status()["state"] == "healthy"


def test_without_the_token_nothing_answers(inproc_pod: RunningPod) -> None:
    run = read_run_file(inproc_pod.home, "station")
    assert run is not None
    for path in ("/health", "/status", "/chat", "/nothing"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(run.url + path, timeout=10)
        assert caught.value.code == 401
        caught.value.close()


def test_a_client_that_leaves_ends_its_request(inproc_pod: RunningPod) -> None:
    response = inproc_pod.call("/chat", {"prompt_ids": PROMPT, "max_tokens": 4000})
    assert json.loads(response.readline())["type"] == "token"

    def running() -> int:
        return inproc_pod.status()["requests"]["running"]

    inproc_pod.wait("the request", lambda: running() == 1)
    response.close()
    inproc_pod.wait("the end", lambda: running() == 0)


def test_a_receipt_is_kept_with_its_provenance(inproc_pod: RunningPod) -> None:
    body = {"kind": "bench", "provenance": "measured", "command": "k3ctl bench pod",
            "figures": {"ratio": 0.9}, "environment": {"cores": 2}}  # fmt: skip
    with inproc_pod.call("/receipts", body) as response:
        receipt_id = json.load(response)["id"]
    with StateReader.open(inproc_pod.home) as reader:
        (receipt,) = reader.receipts(kind="bench")
    assert (receipt.id, receipt.figures) == (receipt_id, {"ratio": 0.9})


def test_a_receipt_without_provenance_is_refused(inproc_pod: RunningPod) -> None:
    body = {"kind": "bench", "provenance": "felt", "command": "", "figures": {}, "environment": {}}
    with pytest.raises(urllib.error.HTTPError) as caught:
        inproc_pod.call("/receipts", body)
    with caught.value as response:
        assert "felt" in json.load(response)["message"]


def test_half_a_request_holds_nobody_up(inproc_pod: RunningPod) -> None:
    run = read_run_file(inproc_pod.home, "station")
    assert run is not None
    with socket.create_connection((run.http_host, run.http_port)) as slow:
        slow.sendall(b"POST /chat HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n")
        assert inproc_pod.ids(prompt_ids=PROMPT, max_tokens=2)


def test_health_names_the_node_and_its_progress(inproc_pod: RunningPod) -> None:
    with inproc_pod.call("/health") as response:
        health = json.load(response)
    assert (health["schema"], health["node"], health["state"]) == (
        "k3d.health/1", "station", "healthy",
    )  # fmt: skip
    assert 0 <= health["progress_age_s"] < 5


def test_hops_and_tokens_reach_telemetry_when_the_station_ends(start_pod: Any) -> None:
    pod = start_pod(2, "--transport", "inproc")
    pod.ids(prompt_ids=PROMPT, max_tokens=12)
    served = {t["name"]: t["hop_us"]["count"] for t in pod.status()["tiers"] if t["hop_us"]}
    pod.processes["station"].terminate()
    assert pod.processes["station"].wait(20) == 0
    rows = read_hops(pod.home)
    assert {row.tier for row in rows} == set(served)
    for tier, count in served.items():
        assert sum(row.count for row in rows if row.tier == tier) == count, "prompts' hops too"
        found = [(row.p50_us, row.p99_us) for row in rows if row.tier == tier]
        known = [(p50, p99) for p50, p99 in found if p50 is not None and p99 is not None]
        assert known
        assert all(0 < p50 <= p99 for p50, p99 in known)
    tokens = {row.kind: row.tokens for row in read_tokens(pod.home)}
    assert tokens == {"prompt": len(PROMPT), "decode": 11}
    assert not list((pod.home / "run").glob("*.json"))
