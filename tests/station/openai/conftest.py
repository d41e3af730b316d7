"""An API server in this process, with a fake engine and a tokenizer of single bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from k3d.model.chat_format import ChatFormat
from k3d.model.prompt_bodies import BODY_SHA256, PromptBodies
from k3d.model.tokenizer import Tokenizer
from k3d.node.http import bind
from k3d.station.openai.limits import ApiLimits
from k3d.station.openai.served import Served
from k3d.station.openai.server import ApiServer
from tests.station.openai.fake_scheduler import FakeScheduler, Script

MODEL = "k3-tiny"
K3_MINI = Path(__file__).parents[3] / "banks" / "k3-mini"
ROOM = 4000
BLOCKS = (1, 2, 4, 8, 0)
"""Tokens a pass brings; 0 is all of them."""


@dataclass
class Api:
    """A running server and its engine."""

    server: ApiServer
    engine: FakeScheduler
    chat: ChatFormat
    client: httpx.Client

    @property
    def tokenizer(self) -> Tokenizer:
        return self.chat.tokenizer

    def post(self, path: str, /, **fields: Any) -> httpx.Response:
        return self.client.post(path, json={"model": MODEL, **fields})

    def chatted(self, /, **fields: Any) -> Any:
        """The response to a chat request."""
        fields.setdefault("messages", [{"role": "user", "content": "hi"}])
        return self._good(self.post("chat/completions", **fields))

    def completed(self, /, **fields: Any) -> Any:
        fields.setdefault("prompt", "hi")
        return self._good(self.post("completions", **fields))

    def chunks(self, path: str, /, **fields: Any) -> list[dict[str, Any]]:
        """Chunks of a stream that ended as it should."""
        if path == "chat/completions":
            fields.setdefault("messages", [{"role": "user", "content": "hi"}])
        body = {"model": MODEL, "stream": True, **fields}
        with self.client.stream("POST", path, json=body) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = [line for line in response.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def refusal(self, path: str, /, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Status and error of a request that must be refused."""
        response = self.post(path, **fields)
        assert response.status_code >= 400, response.text
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return response.status_code, error

    @staticmethod
    def _good(response: httpx.Response) -> Any:
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture(scope="session")
def tiny_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with prompt bodies, so that it can be given tools and formats."""
    folder = tmp_path_factory.mktemp("with-bodies") / MODEL
    shutil.copytree(tiny_model, folder)
    shutil.copy(K3_MINI / "prompt_bodies.json", folder)
    return folder


@pytest.fixture(scope="session")
def byte_chat(tiny_model: Path) -> ChatFormat:
    """The tiny model's chat format, with bodies that the tests can tell."""
    bodies = PromptBodies(tiny_model, {name: f"<{name}>" for name in BODY_SHA256})
    return ChatFormat(Tokenizer.load(tiny_model), bodies, default_effort=None)


@pytest.fixture(scope="session")
def ending() -> Iterator[list[ApiServer]]:
    """Servers that were told to end; they take a third of a second each to do so."""
    servers: list[ApiServer] = []
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def start_api(
    byte_chat: ChatFormat, tmp_path: Path, ending: list[ApiServer]
) -> Iterator[Callable[..., Any]]:
    """Start a server whose engine writes what `script` says (text, ids, or a function)."""
    running: list[Api] = []

    def start(
        script: str | list[int] | Script = "hello",
        *,
        block: int = 1,
        lanes: int = 4,
        queue: int = 60,
        limits: ApiLimits | None = None,
        home: Path | None = None,
        acceptance: float | None = None,
        room: int = ROOM,
    ) -> Api:
        engine = FakeScheduler(_script(script, byte_chat), block, lanes, byte_chat.stop_id)
        served = Served(
            model=MODEL, digest="0" * 64, created=1, chat=byte_chat, room=room,
            vocab_size=byte_chat.tokenizer.vocab_size, lanes=lanes, queue=queue, engine=engine,
            state=lambda: ("healthy", None), synthetic_acceptance=acceptance,
        )  # fmt: skip
        server = ApiServer(bind("127.0.0.1", 0), "127.0.0.1", served, home or tmp_path, limits)
        server.start()
        client = httpx.Client(base_url=server.url, timeout=30)
        running.append(Api(server, engine, byte_chat, client))
        return running[-1]

    yield start
    for api in running:
        api.client.close()
        api.engine.close()
        api.server._server.should_exit = True
        ending.append(api.server)


def _script(script: str | list[int] | Script, chat: ChatFormat) -> Script:
    if callable(script):
        return script
    ids = chat.tokenizer.encode(script) if isinstance(script, str) else script
    return lambda _request: ids


@contextmanager
def unfinished(api: Api, path: str, /, **fields: Any) -> Iterator[httpx.Response]:
    """A stream that is left before its end."""
    with api.client.stream("POST", path, json={"model": MODEL, "stream": True, **fields}) as reply:
        yield reply


def joined(chunks: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What a stream said of each choice, in the shape of a response that is not streamed."""
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            whole = found.setdefault(choice["index"], {"finish": [], "content": ""})
            _add(whole, choice)
    return found


def _add(whole: dict[str, Any], choice: dict[str, Any]) -> None:
    if choice["finish_reason"] is not None:
        whole["finish"].append((choice["finish_reason"], choice["stop_reason"]))
    delta = choice.get("delta", {})
    whole["content"] += delta.get("content", "") + choice.get("text", "")
    for name in ("reasoning", "reasoning_content"):
        if name in delta:
            whole[name] = whole.get(name, "") + delta[name]
    for piece in delta.get("tool_calls", ()):
        calls = whole.setdefault("calls", {})
        call = calls.setdefault(piece["index"], {"names": [], "ids": [], "arguments": ""})
        if "name" in piece["function"]:
            call["names"].append(piece["function"]["name"])
            call["ids"].append(piece["id"])
        call["arguments"] += piece["function"].get("arguments", "")
    if choice["logprobs"] is not None:
        logprobs = whole.setdefault("logprobs", {})
        for name, entries in choice["logprobs"].items():
            if entries is not None:
                logprobs.setdefault(name, []).extend(entries)
    whole.setdefault("ids", []).extend(choice.get("token_ids", ()))
