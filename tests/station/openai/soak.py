"""Random requests of many clients, some of which leave; what they got, to be asked for again."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

MODEL = "k3-tiny"
WORDS = ["the", "quick", "🦊", "jumps", "<|open|>", "over\n\nnaïve", "日本語", "0123", "{}"]
PICK = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}, "b": {"enum": ["x", "yy"]}},
    "required": ["a"],
    "additionalProperties": False,
}
BAD: tuple[dict[str, Any], ...] = (
    {"temperature": 3},
    {"n": 99},
    {"max_tokens": 10**9},
    {"stop": [""]},
    {"model": "other"},
    {"logit_bias": {"99999": 1}},
    {"stop_token_ids": [-1]},
)


@dataclass(frozen=True)
class Asked:
    """A request, and how its client behaves."""

    path: str
    body: dict[str, Any]
    leaves_after: int | None
    """Reads of the answer after which the client is gone; None for one that stays."""
    bad: bool


def random_request(random_: random.Random) -> Asked:
    chat = random_.random() < 0.6
    text = " ".join(random_.choices(WORDS, k=random_.choice((1, 1, 3, 10))))
    body: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": random_.randint(1, 24),
        "temperature": random_.choice((0, 0, 0.7, 1.3)),
        "seed": random_.randrange(2**40),
        "stream": random_.random() < 0.6,
    }
    if chat:
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = random_.choice((text, [text, "b"], list(text.encode())))
    for name, values in {
        "n": (1, 2, 4),
        "top_p": (0.5, 0.9),
        "top_k": (1, 5, -1),
        "min_p": (0.05,),
        "presence_penalty": (-1, 1.5),
        "frequency_penalty": (0.5,),
        "repetition_penalty": (1.2,),
        "stop": ("a", ["e", "\n", "xyz"]),
        "logit_bias": ({"65": 5, "10": -100},),
        "stop_token_ids": ([10, 32],),
        "min_tokens": (1,),
        "ignore_eos": (True,),
        "cache_salt": ("one", "two"),
        "unknown_field": ({"deep": [1]},),
    }.items():
        if random_.random() < 0.15:
            body[name] = random_.choice(values)
    if body["stream"] and random_.random() < 0.5:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    body["return_token_ids"] = True
    _ask_for_more(body, random_, chat)
    bad = random_.random() < 0.08
    if bad:
        body |= random_.choice(BAD)
    leaves = random_.choice((0, 0, 1, 2, 5)) if random_.random() < 0.25 else None
    return Asked("chat/completions" if chat else "completions", body, leaves, bad)


def _ask_for_more(body: dict[str, Any], random_: random.Random, chat: bool) -> None:
    if random_.random() < 0.2:
        body |= {"logprobs": True, "top_logprobs": 3} if chat else {"logprobs": 2, "echo": True}
    elif chat and random_.random() < 0.25:
        body.pop("min_tokens", None)
        body["max_tokens"] = 150
        tool = {"type": "function", "function": {"name": "pick", "parameters": PICK}}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": PICK}}
        more: tuple[dict[str, Any], ...] = (
            {"response_format": form},
            {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False},
            {"tools": [tool]},
        )
        body |= random_.choice(more)


@dataclass
class Soak:
    """`clients` threads that send `requests` requests between them."""

    url: str
    clients: int
    requests: int
    seed: int
    answered: list[tuple[Asked, Any]] = field(default_factory=list)
    refused: int = 0
    left: int = 0
    wrong: list[str] = field(default_factory=list)

    def run(self, timeout_s: float) -> None:
        """Raises AssertionError when a client hangs."""
        seeds = iter(range(self.seed, self.seed + self.requests))
        lock = threading.Lock()
        threads = [
            threading.Thread(target=self._client, args=(seeds, lock), daemon=True)
            for _ in range(self.clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout_s)
        assert not any(thread.is_alive() for thread in threads), "a client hangs"

    def again(self, asked: Asked) -> Any:
        """What the same request gets now."""
        with httpx.Client(base_url=self.url, timeout=600) as client:
            return _answer(client, asked)

    def _client(self, seeds: Iterator[int], lock: threading.Lock) -> None:
        with httpx.Client(base_url=self.url, timeout=600) as client:
            while True:
                with lock:
                    seed = next(seeds, None)
                if seed is None:
                    return
                asked = random_request(random.Random(seed))
                try:
                    self._one(client, asked)
                except (AssertionError, httpx.HTTPError, KeyError) as error:
                    self.wrong.append(f"seed {seed}: {error!r}")

    def _one(self, client: httpx.Client, asked: Asked) -> None:
        if asked.bad:
            response = client.post(asked.path, json=asked.body)
            assert response.status_code in (400, 404), response.text
            self.refused += 1
            return
        if asked.leaves_after is not None:
            self._leave(asked)
            self.left += 1
            return
        self.answered.append((asked, _answer(client, asked)))

    def _leave(self, asked: Asked) -> None:
        with httpx.Client(base_url=self.url, timeout=600) as client:
            body = {**asked.body, "stream": True, "max_tokens": 100}
            with client.stream("POST", asked.path, json=body) as response:
                lines = response.iter_lines()
                for _ in range(asked.leaves_after or 0):
                    next(lines, None)


class _Full(Exception):
    """The Station had no place; a client asks again, as libraries do."""


def _answer(client: httpx.Client, asked: Asked) -> Any:
    """What was said, in the same shape whether it was streamed or not."""
    patience = threading.Event()
    for _ in range(1000):
        try:
            return _attempt(client, asked)
        except _Full:
            patience.wait(0.2)
    raise AssertionError("the Station stays full")


def _attempt(client: httpx.Client, asked: Asked) -> Any:
    if not asked.body["stream"]:
        response = client.post(asked.path, json=asked.body)
        _check(response)
        return [_choice(choice) for choice in response.json()["choices"]]
    with client.stream("POST", asked.path, json=asked.body) as response:
        if response.status_code != 200:
            response.read()
        _check(response)
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]", lines[-1:]
    found: dict[int, list[Any]] = {}
    for line in lines[:-1]:
        chunk = json.loads(line.removeprefix("data: "))
        assert "error" not in chunk, chunk
        for choice in chunk["choices"]:
            whole = found.setdefault(choice["index"], ["", [], None])
            whole[0] += choice.get("text", "") + choice.get("delta", {}).get("content", "")
            whole[1] += choice.get("token_ids", [])
            whole[2] = choice["finish_reason"] or whole[2]
    return [tuple(map(_frozen, found[at])) for at in sorted(found)]


def _check(response: httpx.Response) -> None:
    if response.status_code == 503 and "retry-after" in response.headers:
        raise _Full
    assert response.status_code == 200, response.text


def _choice(choice: dict[str, Any]) -> tuple[Any, ...]:
    text = choice["text"] if "text" in choice else choice["message"]["content"] or ""
    return (text, tuple(choice["token_ids"]), choice["finish_reason"])


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
