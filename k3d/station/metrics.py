"""Prometheus metrics of a Station's API and engine.

Names that begin with vllm: mean what vLLM's of that name mean, so that dashboards fit; the rest
begin with k3_. Labels have few values each: nothing that a client sends becomes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from k3d.engine.counts import EngineCounts
from k3d.engine.request import Timing

disable_created_metrics()  # a series more for each of them, which nobody reads

ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/health",
    "/ready",
    "/ping",
    "/metrics",
    "/openapi.json",
)
_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
            10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,
           200000, 500000, 1000000)  # fmt: skip
_REASONS = {"stop": "stop", "tool_calls": "stop", "length": "length", "abort": "abort"}


class ApiMetrics:
    """Counters of one API; the engine's gauges are read when somebody asks."""

    def __init__(
        self,
        model: str,
        counts: Callable[[], EngineCounts],
        progress_age_s: Callable[[], float],
        pod: Collector | None = None,
    ) -> None:
        """`pod`: what else is collected when somebody asks."""
        self._registry = CollectorRegistry()
        self._registry.register(_EngineGauges(model, counts, progress_age_s))
        if pod is not None:
            self._registry.register(pod)
        self._model = model

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(name, what, ("model_name", *labels), registry=self._registry)

        def histogram(name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, what, ("model_name",), registry=self._registry, buckets=buckets)

        self._success = counter(
            "vllm:request_success", "Answers by the reason they ended.", "finished_reason"
        )
        self._prompt = counter("vllm:prompt_tokens", "Prompt tokens of ended requests.")
        self._written = counter("vllm:generation_tokens", "Tokens written for ended requests.")
        self._queries = counter("vllm:prefix_cache_queries", "Prompt tokens looked up for reuse.")
        self._hits = counter("vllm:prefix_cache_hits", "Prompt tokens reused.")
        self._rounds = counter("vllm:spec_decode_num_drafts", "Rounds that decoded.")
        self._drafted = counter("vllm:spec_decode_num_draft_tokens", "Draft tokens verified.")
        self._accepted = counter("vllm:spec_decode_num_accepted_tokens", "Draft tokens kept.")
        self._by_timing = {
            "first": histogram(
                "vllm:time_to_first_token_seconds", "From submission to the first token.", _SECONDS
            ),
            "queue": histogram("vllm:request_queue_time_seconds", "Waiting for a lane.", _SECONDS),
            "prompt": histogram(
                "vllm:request_prefill_time_seconds", "Reading the prompt.", _SECONDS
            ),
            "decode": histogram("vllm:request_decode_time_seconds", "Decoding.", _SECONDS),
            "all": histogram(
                "vllm:e2e_request_latency_seconds", "From submission to the end.", _SECONDS
            ),
            "token": histogram(
                "vllm:request_time_per_output_token_seconds",
                "Decoding time by tokens after the first, a request's mean.",
                _SECONDS,
            ),
        }
        self._by_size = {
            "prompt": histogram("vllm:request_prompt_tokens", "Prompt tokens.", _TOKENS),
            "written": histogram("vllm:request_generation_tokens", "Tokens written.", _TOKENS),
            "most": histogram("vllm:request_params_max_tokens", "max_tokens asked.", _TOKENS),
            "n": histogram("vllm:request_params_n", "n asked.", (1, 2, 4, 8)),
        }
        self._http = Counter(
            "k3_http_requests", "HTTP responses.", ("route", "status"), registry=self._registry
        )
        self._gone = Counter(
            "k3_clients_gone", "Clients that left before their answer.", registry=self._registry
        )
        self._unknown = Counter(
            "k3_unknown_fields", "Fields of requests that mean nothing here.",
            registry=self._registry,
        )  # fmt: skip

    def text(self) -> bytes:
        """The exposition, as text."""
        return generate_latest(self._registry)

    def http(self, path: str, status: int) -> None:
        """A response. Paths that are no route of ours share one label."""
        route = path if path in ROUTES else "/v1/models" if _is_model(path) else "other"
        self._http.labels(route, str(status)).inc()

    def client_gone(self) -> None:
        self._gone.inc()

    def unknown_fields(self, count: int) -> None:
        self._unknown.inc(count)

    def finished(
        self,
        reason: str,
        timing: Timing | None,
        *,
        prompt_tokens: int,
        completion_tokens: int,
        max_tokens: int,
        n: int,
    ) -> None:
        """The end of one answer. `reason` is a finish_reason, abort or error; `timing` is None
        for one that nobody waited for."""
        model = self._model
        self._success.labels(model, _REASONS.get(reason, "error")).inc()
        self._prompt.labels(model).inc(prompt_tokens)
        self._written.labels(model).inc(completion_tokens)
        sizes = {"prompt": prompt_tokens, "written": completion_tokens, "most": max_tokens, "n": n}
        for name, size in sizes.items():
            self._by_size[name].labels(model).observe(size)
        if timing is None:
            return
        self._queries.labels(model).inc(timing.prompt_tokens)
        self._hits.labels(model).inc(timing.cached_tokens)
        self._rounds.labels(model).inc(timing.rounds)
        self._drafted.labels(model).inc(timing.drafted)
        self._accepted.labels(model).inc(timing.accepted)
        first_s = timing.queue_s + timing.prompt_s
        seconds = {
            "queue": timing.queue_s,
            "prompt": timing.prompt_s,
            "decode": timing.decode_s,
            "first": first_s,
            "all": first_s + timing.decode_s,
        }
        if timing.completion_tokens > 1:
            seconds["token"] = timing.decode_s / (timing.completion_tokens - 1)
        for name, value in seconds.items():
            self._by_timing[name].labels(model).observe(value)


class _EngineGauges(Collector):
    """The engine as it is at this moment, /chat's requests included."""

    def __init__(
        self, model: str, counts: Callable[[], EngineCounts], progress_age_s: Callable[[], float]
    ) -> None:
        self._model = model
        self._counts = counts
        self._progress_age_s = progress_age_s

    def collect(self) -> Iterator[Metric]:
        counts = self._counts()
        preempted = CounterMetricFamily(
            "vllm:num_preemptions", "Lanes that gave their memory up.", labels=("model_name",)
        )
        preempted.add_metric((self._model,), counts.preempted)
        yield preempted
        for name, what, value in (
            ("vllm:num_requests_running", "Requests in lanes.", counts.running),
            ("vllm:num_requests_waiting", "Requests that wait for a lane.", counts.waiting),
            (
                "vllm:kv_cache_usage_perc",
                "Share of the pages for latent rows in use, of 1.",
                1.0 - counts.free_pages / counts.pages if counts.pages else 0.0,
            ),
            ("k3_engine_passes", "Passes since the start.", counts.passes),
            (
                "k3_engine_progress_age_seconds",
                "Since the engine last finished a pass or looked for work.",
                self._progress_age_s(),
            ),
        ):
            family = GaugeMetricFamily(name, what, labels=("model_name",))
            family.add_metric((self._model,), value)
            yield family


def _is_model(path: str) -> bool:
    return path.startswith("/v1/models/")
