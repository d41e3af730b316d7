"""Clients that leave: at any moment, in any mode, and nothing stays behind."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from k3d.errors import NodeLost, Refused
from tests.station.openai.conftest import MODEL, Api, unfinished
from tests.station.openai.fake_scheduler import FakeScheduler

Start = Callable[..., Api]
CHAT = "chat/completions"
USER = [{"role": "user", "content": "hi"}]


def quiet(api: Api) -> bool:
    """Whether every counter is where it began. Called with the engine's lock held."""
    return not api.engine._live and api.server.admission.choices == 0


def wait_quiet(api: Api) -> None:
    admission = api.server.admission
    give_up = threading.Event()
    for _ in range(1000):
        if api.engine.live == 0 and admission.choices == 0 and admission.prompt_tokens == 0:
            break
        give_up.wait(0.01)
    assert api.engine.live == 0
    assert (admission.choices, admission.prompt_tokens, admission.body_bytes) == (0, 0, 0)


def raw(api: Api, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection with a request on it."""
    host, port = api.server.url.removeprefix("http://").removesuffix("/v1").split(":")
    connection = socket.create_connection((host, int(port)))
    data = json.dumps({"model": MODEL, **body}).encode()
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    connection.sendall(head.encode() + data)
    return connection


def reset(connection: socket.socket) -> None:
    """Close with RST, as a killed client's machine may."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_stream_that_is_left_ends_within_a_pass(start_api: Start) -> None:
    api = start_api("x" * 3000)
    api.engine.hold()
    with unfinished(api, CHAT, messages=USER) as response:
        lines = response.iter_lines()
        assert "role" in next(lines)
        api.engine.step()
        next(line for line in lines if "x" in line)
    api.engine.wait_for(lambda: not api.engine._live)
    assert api.engine.passes == 1
    wait_quiet(api)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_requests_that_nobody_waits_for_never_start(start_api: Start, stream: bool, n: int) -> None:
    api = start_api("x" * 3000, lanes=1)
    api.engine.hold()
    first = raw(api, CHAT, {"messages": USER, "stream": True})
    api.engine.wait_for(lambda: len(api.engine._live) == 1)
    queued = raw(api, CHAT, {"messages": USER, "stream": stream, "n": n})
    api.engine.wait_for(lambda: len(api.engine._live) == 1 + n)
    reset(queued)
    api.engine.wait_for(lambda: len(api.engine._live) == 1)
    assert api.engine._live[0].request is api.engine.submitted[0]
    reset(first)
    api.engine.wait_for(lambda: not api.engine._live)
    assert api.engine.passes == 0
    wait_quiet(api)


def test_a_client_that_closes_its_sending_half_is_gone(start_api: Start) -> None:
    api = start_api("x" * 3000)
    api.engine.hold()
    connection = raw(api, CHAT, {"messages": USER})
    api.engine.wait_for(lambda: bool(api.engine._live))
    connection.shutdown(socket.SHUT_WR)
    api.engine.wait_for(lambda: not api.engine._live)
    assert connection.recv(100) == b""
    connection.close()
    wait_quiet(api)


def test_leaving_does_not_touch_others(start_api: Start) -> None:
    api = start_api("0123456789" * 20, lanes=2)
    api.engine.hold()
    leaving = raw(api, CHAT, {"messages": USER, "stream": True})
    api.engine.wait_for(lambda: len(api.engine._live) == 1)
    whole: list[Any] = []
    staying = threading.Thread(target=lambda: whole.append(api.completed(max_tokens=200)))
    staying.start()
    api.engine.wait_for(lambda: len(api.engine._live) == 2)
    api.engine.step(3)
    reset(leaving)
    api.engine.go()
    staying.join(20)
    assert whole[0]["choices"][0]["text"] == "0123456789" * 20
    wait_quiet(api)


def test_leaving_at_any_moment_leaves_nothing(start_api: Start, seed: int) -> None:
    api = start_api("word " * 60, block=2, lanes=3)
    random_ = random.Random(seed)
    for _ in range(60):
        body: dict[str, Any] = {"stream": random_.random() < 0.7, "n": random_.choice((1, 1, 3))}
        if random_.random() < 0.3:
            body["stop"] = random_.choice(("rd wo", "never", "w"))
        if random_.random() < 0.2:
            body["max_tokens"] = random_.randint(1, 30)
        path = random_.choice((CHAT, "completions"))
        body |= {"messages": USER} if path == CHAT else {"prompt": ["a", "bc"], "logprobs": 1}
        connection = raw(api, path, body)
        connection.settimeout(0.1)  # an answer that is over leaves its connection open
        with suppress(TimeoutError):
            for _ in range(random_.choice((0, 0, 1, 2, 50))):
                if not connection.recv(random_.choice((10, 5000))):
                    break
        if random_.random() < 0.5:
            reset(connection)
        else:
            connection.close()
    wait_quiet(api)
    assert api.completed(max_tokens=4)["choices"][0]["text"] == "word"
    ended = api.client.get(api.server.url.removesuffix("v1") + "metrics").text
    total = sum(
        float(line.rpartition(" ")[2])
        for line in ended.splitlines()
        if line.startswith("vllm:request_success_total")
    )
    assert total == len(api.engine.submitted)


def test_a_refused_choice_takes_the_others_with_it(start_api: Start) -> None:
    api = start_api("x")
    api.engine.hold()
    accept = FakeScheduler.submit

    def third_is_refused(request: Any, deliver: Any) -> Any:
        if len(api.engine.submitted) == 2:
            api.engine.refusal = Refused("64 requests are waiting")
        return accept(api.engine, request, deliver)

    api.engine.submit = third_is_refused  # type: ignore[method-assign]
    response = api.post(CHAT, messages=USER, n=4)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "server_overloaded"
    assert response.headers["retry-after"] == "1"
    wait_quiet(api)


@pytest.mark.parametrize("n", [1, 2])
def test_an_engine_that_fails_in_a_stream_says_so_in_it(start_api: Start, n: int) -> None:
    api = start_api("x" * 100)
    api.engine.fails_after = 3
    api.engine.error = NodeLost("spark-1", "spark-1 stopped answering")
    with unfinished(api, CHAT, messages=USER, n=n) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    error = json.loads(lines[-2].removeprefix("data: "))["error"]
    assert error["message"] == "spark-1 stopped answering"
    assert error["code"] == "unavailable"
    assert "xxx" in "".join(json.loads(x[6:])["choices"][0]["delta"].get("content", "")
                            for x in lines[:-2] if '"index":0' in x)  # fmt: skip
    wait_quiet(api)
    whole = api.post(CHAT, messages=USER)
    assert whole.status_code == 503
    assert whole.headers["retry-after"] == "1"


def test_an_engine_that_breaks_is_500_without_a_traceback(start_api: Start) -> None:
    api = start_api("x" * 100)
    api.engine.fails_after = 0
    response = api.post(CHAT, messages=USER)
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "the engine broke"


def test_the_end_of_the_station_ends_streams_with_an_error(start_api: Start) -> None:
    api = start_api("x" * 3000)
    api.engine.hold()
    with unfinished(api, CHAT, messages=USER) as response:
        lines = response.iter_lines()
        next(lines)
        api.server.admission.draining = True
        assert api.post(CHAT, messages=USER).status_code == 503
        assert api.client.get(api.server.url.removesuffix("v1") + "ready").status_code == 503
        api.engine.close()
        rest = [line for line in lines if line]
    assert "shutting down" in rest[-2]
    assert rest[-1] == "data: [DONE]"
