"""The API of a real Station: a tiny model, real lanes, a real end."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.station.conftest import RunningPod

MODEL = "k3-tiny"
USER = [{"role": "user", "content": "hi"}]
PAIR = {
    "type": "object",
    "properties": {"a": {"enum": [1, 20]}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def api_of(pod: RunningPod) -> httpx.Client:
    return httpx.Client(base_url=pod.status()["api"]["url"], timeout=60)


@pytest.fixture(scope="module")
def api(inproc_pod: RunningPod) -> Iterator[httpx.Client]:
    with api_of(inproc_pod) as client:
        yield client


def good(api: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    response = api.post(path, json={"model": MODEL, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def chunks(api: httpx.Client, path: str, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": MODEL, "stream": True, **fields}
    with api.stream("POST", path, json=body) as response:
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_both_faces_of_a_station_write_the_same(inproc_pod: RunningPod, api: httpx.Client) -> None:
    ids = inproc_pod.ids(messages=USER, max_tokens=12)
    whole = good(
        api, "chat/completions", messages=USER, max_tokens=12, temperature=0, return_token_ids=True
    )
    assert whole["choices"][0]["token_ids"] == ids
    again = chunks(
        api, "chat/completions", messages=USER, max_tokens=12, temperature=0, return_token_ids=True
    )
    streamed = [t for c in again for x in c["choices"] for t in x.get("token_ids", ())]
    assert streamed == ids


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_is_the_text_whatever_runs_beside_it(api: httpx.Client, seed: int) -> None:
    def written(**more: Any) -> list[Any]:
        fields = {"prompt": "ab", "max_tokens": 10, "seed": seed, "return_token_ids": True}
        return [c["token_ids"] for c in good(api, "completions", **fields, **more)["choices"]]

    (alone,) = written()
    crowded = written(n=4)
    assert crowded[0] == alone
    assert len({tuple(each) for each in crowded}) == 4


def test_scores_of_a_prompt_are_those_of_writing_it(api: httpx.Client) -> None:
    wrote = good(
        api, "completions", prompt=[52, 133, 217], max_tokens=6, temperature=0, logprobs=2,
        return_token_ids=True,
    )["choices"][0]  # fmt: skip
    whole = [52, 133, 217, *wrote["token_ids"]]
    scored = good(
        api, "completions", prompt=whole, max_tokens=0, echo=True, logprobs=2
    )["choices"][0]["logprobs"]  # fmt: skip
    assert scored["token_logprobs"][0] is None
    assert scored["token_logprobs"][3:] == wrote["logprobs"]["token_logprobs"]
    assert len(scored["tokens"]) == len(whole)


def test_a_schema_holds_on_a_model_that_knows_nothing(api: httpx.Client) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": PAIR}}
    whole = good(
        api, "chat/completions", messages=USER, response_format=form, max_tokens=300, seed=3, n=2
    )
    for choice in whole["choices"]:
        if choice["finish_reason"] == "stop":
            assert set(json.loads(choice["message"]["content"])) == {"a", "b"}
    assert any(choice["finish_reason"] == "stop" for choice in whole["choices"])


def test_a_call_is_made_on_a_model_that_knows_nothing(api: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "get", "parameters": PAIR}}
    (choice,) = good(
        api, "chat/completions", messages=USER, tools=[tool], tool_choice="required",
        parallel_tool_calls=False, max_tokens=300, seed=5,
    )["choices"]  # fmt: skip
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["b"] in ("x", "yy")


def test_a_client_that_leaves_frees_its_lane(inproc_pod: RunningPod, api: httpx.Client) -> None:
    body = {"model": MODEL, "messages": USER, "max_tokens": 2000, "stream": True, "n": 3}
    with api.stream("POST", "chat/completions", json={**body, "ignore_eos": True}) as response:
        assert sum(1 for _, line in zip(range(12), response.iter_lines(), strict=False)) == 12
        assert inproc_pod.status()["requests"]["running"] == 3
    inproc_pod.wait("the end", lambda: inproc_pod.status()["requests"]["running"] == 0, 10)


def test_probes_and_metrics_are_the_engines(inproc_pod: RunningPod, api: httpx.Client) -> None:
    root = str(api.base_url).removesuffix("/v1/")
    assert api.get(root + "/health").status_code == 200
    assert api.get(root + "/ready").status_code == 200
    text = api.get(root + "/metrics").text
    assert 'vllm:num_requests_running{model_name="k3-tiny"} 0.0' in text
    assert inproc_pod.status()["api"]["url"] == f"{root}/v1"


def test_what_the_engine_refuses_is_the_requests_fault(api: httpx.Client) -> None:
    response = api.post("completions", json={"model": MODEL, "prompt": [384]})
    assert response.status_code == 400


@pytest.mark.pod
def test_the_end_of_a_station_is_an_error_in_its_streams(start_pod: Callable[..., Any]) -> None:
    pod = start_pod(1, "--transport", "inproc")
    begun = threading.Event()
    lines: list[str] = []

    def read() -> None:
        body = {"model": MODEL, "messages": USER, "stream": True, "ignore_eos": True}
        with (
            api_of(pod) as client,
            client.stream("POST", "chat/completions", json=body) as response,
        ):
            for line in response.iter_lines():
                lines.append(line)
                if '"content":"' in line:
                    begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(30)
    pod.kill("station", signal.SIGTERM)
    assert pod.processes["station"].wait(20) == 0
    reader.join(10)
    said = [line for line in lines if line]
    assert said[-1] == "data: [DONE]"
    assert "shutting down" in json.loads(said[-2].removeprefix("data: "))["error"]["message"]
