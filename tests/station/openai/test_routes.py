"""Models, probes, metrics, the document; and what is no route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from k3d.station.openai import responses
from tests.station.openai.conftest import MODEL, ROOM, Api

Start = Callable[..., Api]


def root(api: Api) -> str:
    return api.server.url.removesuffix("/v1")


def test_models_are_the_one_that_is_served(start_api: Start) -> None:
    api = start_api("x")
    listed = api.client.get("models").json()
    assert listed["object"] == "list"
    assert listed["data"] == [
        {"id": MODEL, "object": "model", "created": 1, "owned_by": "k3pod", "max_model_len": ROOM}
    ]
    assert api.client.get(f"models/{MODEL}").json() == listed["data"][0]
    for other in ("gpt", "org/gpt", "..%2f..%2fetc%2fpasswd", "%2e%2e/x", MODEL + "/"):
        response = api.client.get(f"models/{other}")
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/", "//v1/models", "/v1/./x", "/v1/embeddings", "/tokenize", "/props",
     "/version", "/api/version", "/get_model_info", "/server_info", "/stats", "/..%2f..%2fetc",
     "/health/", "/docs", "/v1/models/../../etc/passwd", "/%00"],
)  # fmt: skip
def test_what_is_no_route_is_a_quick_404(start_api: Start, path: str) -> None:
    api = start_api("x")
    for method in ("GET", "POST"):
        response = api.client.request(
            method, root(api) + path, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 404, (method, path)
        assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/completions", "POST"), ("DELETE", "/v1/models", "GET"),
     ("TRACE", "/v1/chat/completions", "POST"), ("OPTIONS", "/v1/completions", "POST"),
     ("PUT", "/health", "GET")],
)  # fmt: skip
def test_another_method_is_405(start_api: Start, method: str, path: str, allowed: str) -> None:
    api = start_api("x")
    response = api.client.request(method, root(api) + path)
    assert response.status_code == 405
    assert allowed in response.headers["allow"]
    assert response.json()["error"]["message"] == f"{method} is not served here"


def test_health_follows_the_engine(start_api: Start) -> None:
    api = start_api("x")
    health = root(api) + "/health"
    assert api.client.get(health).json() == {"status": "ok", "reason": None}
    assert api.client.head(health).status_code == 200
    api.engine.progress_age_s = 6.0
    stalled = api.client.get(health)
    assert stalled.status_code == 503
    assert "no pass for 6.0 s" in stalled.json()["reason"]
    api.engine.progress_age_s, api.engine.alive = 0.0, False
    assert api.client.get(health).status_code == 503
    assert api.client.get(root(api) + "/ping").status_code == 503
    assert api.client.get("models").status_code == 200


def test_made_up_acceptance_is_never_ready(start_api: Start) -> None:
    api = start_api("x", acceptance=2.0)
    ready = api.client.get(root(api) + "/ready")
    assert ready.status_code == 503
    assert "not the model's" in ready.json()["reason"]
    assert api.client.get(root(api) + "/health").status_code == 200
    assert start_api("x").client.get(root(api) + "/ready").status_code == 503


def metrics(api: Api) -> dict[str, float]:
    text = api.client.get(root(api) + "/metrics").text
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_metrics_count_what_was_answered(start_api: Start) -> None:
    api = start_api("hello", block=2)
    api.completed(prompt="abcd")
    api.completed(prompt="abcd", max_tokens=2, n=2)
    api.post("completions", prompt="")
    found = metrics(api)
    name = f'model_name="{MODEL}"'
    assert found[f'vllm:request_success_total{{finished_reason="stop",{name}}}'] == 1
    assert found[f'vllm:request_success_total{{finished_reason="length",{name}}}'] == 2
    assert found[f"vllm:prompt_tokens_total{{{name}}}"] == 12
    assert found[f"vllm:generation_tokens_total{{{name}}}"] == 9
    assert found[f"vllm:prefix_cache_queries_total{{{name}}}"] == 12
    assert found[f"vllm:prefix_cache_hits_total{{{name}}}"] == 6
    assert found[f"vllm:spec_decode_num_drafts_total{{{name}}}"] == 5
    assert found[f"vllm:time_to_first_token_seconds_count{{{name}}}"] == 3
    assert found[f"vllm:num_requests_running{{{name}}}"] == 0
    assert found[f"vllm:kv_cache_usage_perc{{{name}}}"] == 0.25
    assert found['k3_http_requests_total{route="/v1/completions",status="200"}'] == 2
    assert found['k3_http_requests_total{route="/v1/completions",status="400"}'] == 1


def test_metrics_do_not_grow_with_what_clients_send(start_api: Start) -> None:
    api = start_api("x")
    api.post("completions", prompt="a")
    before = set(metrics(api))
    for at in range(20):
        api.client.get(f"/path-{at}")
        api.client.get(f"models/model-{at}")
        api.post("completions", prompt="a", user=f"user-{at}", **{f"field{at}": 1})
    after = {name for name in metrics(api) if 'status="' not in name}
    assert after == {name for name in before if 'status="' not in name}
    assert api.client.head(root(api) + "/metrics").status_code == 200


def test_the_document_describes_what_is_served(start_api: Start) -> None:
    api = start_api("hello")
    document = api.client.get(root(api) + "/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    assert set(document["paths"]) == {
        "/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/{model}",
    }  # fmt: skip
    assert schemas["ChatCompletionRequest"]["required"] == ["model", "messages"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for inner in value.values() for found in references(inner)]
    return (
        [found for inner in value for found in references(inner)] if isinstance(value, list) else []
    )


def test_responses_are_what_the_document_says(start_api: Start) -> None:
    api = start_api("hello")
    completion = api.post("completions", prompt="a", logprobs=1, echo=True).content
    assert msgspec.json.decode(completion, type=responses.Completion).choices[0].text == "ahello"
    error = api.post("completions", prompt="").content
    assert msgspec.json.decode(error, type=responses.ErrorResponse).error.param == "prompt"
    models = api.client.get("models").content
    assert msgspec.json.decode(models, type=responses.ModelList).data[0].id == MODEL
