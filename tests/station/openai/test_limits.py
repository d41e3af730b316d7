"""What one client may take: places, bytes, time, connections."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k3d.station.openai.errors import ApiError
from k3d.station.openai.limits import Admission, ApiLimits
from tests.station.openai.conftest import MODEL, Api
from tests.station.openai.test_cancel import USER, raw, wait_quiet

Start = Callable[..., Api]
CHAT = "chat/completions"


def connect(api: Api) -> socket.socket:
    host, port = api.server.url.removeprefix("http://").removesuffix("/v1").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(10)
    return connection


def reply(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionError:
        pass
    return data


def test_a_full_station_answers_at_once(start_api: Start) -> None:
    api = start_api("x" * 3000, lanes=1, queue=2)
    api.engine.hold()
    held = [raw(api, CHAT, {"messages": USER}) for _ in range(2)]
    api.engine.wait_for(lambda: len(api.engine._live) == 2)
    four = api.post(CHAT, messages=USER, n=4)
    assert four.status_code == 503
    assert four.json()["error"]["code"] == "server_overloaded"
    assert four.headers["retry-after"] == "1"
    held.append(raw(api, CHAT, {"messages": USER}))
    api.engine.wait_for(lambda: len(api.engine._live) == 3)
    assert api.post(CHAT, messages=USER).status_code == 503
    root = api.server.url.removesuffix("v1")
    assert api.client.get(root + "ready").status_code == 503
    assert api.client.get(root + "health").status_code == 200
    for connection in held:
        connection.close()
    wait_quiet(api)
    api.engine.go()
    assert api.chatted(max_tokens=1)


def test_prompts_are_bounded_together() -> None:
    admission = Admission(10, 100, 1000)
    crowded = pytest.raises(ApiError)
    with admission.take("a", 1, 500), crowded as caught, admission.take("a", 1, 1):
        pass
    assert caught.value.status == 503
    with admission.take("a", 1, 60), admission.take("a", 1, 40):
        assert admission.prompt_tokens == 100
    assert admission.prompt_tokens == 0


def test_a_key_has_its_share() -> None:
    admission = Admission(8, 1000, 1000, lambda: True)
    with admission.take("key-1", 6, 1):
        with pytest.raises(ApiError) as caught, admission.take("key-1", 1, 1):
            pass
        assert (caught.value.status, caught.value.error_code) == (429, "rate_limit_exceeded")
        assert caught.value.headers["Retry-After"] == "1"
        with admission.take("key-2", 2, 1):
            assert admission.full


def test_bodies_are_counted_while_they_are_held() -> None:
    admission = Admission(8, 1000, 10)
    with admission.body() as first, admission.body() as second:
        first.add(b"123456")
        with pytest.raises(ApiError) as caught:
            second.add(b"123456")
        assert caught.value.status == 503
    assert admission.body_bytes == 0


@pytest.mark.parametrize("length", [2**31 - 1, 10**25])
def test_a_body_too_large_is_refused_before_it_comes(start_api: Start, length: int) -> None:
    api = start_api("x")
    with connect(api) as connection:
        connection.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
            f"\r\nContent-Length: {length}\r\n\r\n".encode()
        )
        head = connection.recv(65536)
    assert head.startswith(b"HTTP/1.1 413 " if length < 10**20 else b"HTTP/1.1 400 ")


def test_a_body_that_grows_too_large_is_refused(start_api: Start) -> None:
    api = start_api("x", limits=ApiLimits(body_bytes=1000))

    def pieces() -> Any:
        for _ in range(100):
            yield b" " * 100

    response = api.client.post(
        "completions", content=pieces(), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413
    assert api.server.admission.body_bytes == 0


def test_a_compressed_body_is_refused(start_api: Start) -> None:
    response = start_api("x").client.post(
        "completions", content=b"x",
        headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
    )  # fmt: skip
    assert response.status_code == 415


def test_headers_and_bodies_have_a_time(start_api: Start) -> None:
    api = start_api("x", limits=ApiLimits(header_s=1.0, body_s=0.2, idle_s=30))
    with connect(api) as silent, connect(api) as slow, connect(api) as body, connect(api) as second:
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localh")
        body.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"
        )
        second.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += second.recv(65536)
        assert b"200 OK" in answer
        second.sendall(b"GET /health HT")
        assert reply(silent) == b""
        assert reply(slow) == b""
        assert reply(second) == b""
        assert reply(body).startswith(b"HTTP/1.1 408 ")
    assert api.completed(max_tokens=1)


def test_a_client_that_does_not_read_is_dropped_and_holds_nobody_up(start_api: Start) -> None:
    limits = ApiLimits(stall_s=0.3)
    api = start_api("0123456789" * 390, limits=limits, block=8)
    connection = connect(api)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = json.dumps({"model": MODEL, "messages": USER, "stream": True, "logprobs": True,
                       "top_logprobs": 20, "n": 4}).encode()  # fmt: skip
    api.engine.hold()
    connection.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    api.engine.wait_for(lambda: len(api.engine._live) == 4)
    api.engine.go()
    assert api.completed(max_tokens=200)["choices"][0]["text"] == "0123456789" * 20
    wait_quiet(api)
    connection.close()


def test_a_stream_that_is_silent_gets_comments(start_api: Start) -> None:
    api = start_api("x", limits=ApiLimits(comment_s=0.05))
    api.engine.hold()
    with api.client.stream(
        "POST", CHAT, json={"model": MODEL, "messages": USER, "stream": True}
    ) as response:
        lines = response.iter_lines()
        assert "role" in next(lines)
        assert next(line for line in lines if line) == ": waiting"
        api.engine.go()
        assert [line for line in lines if line][-1] == "data: [DONE]"


def test_an_answer_has_a_time(start_api: Start) -> None:
    api = start_api("x", limits=ApiLimits(request_s=0.1))
    api.engine.hold()
    response = api.post(CHAT, messages=USER)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
    wait_quiet(api)


def test_connections_that_ask_for_nothing_make_room(start_api: Start) -> None:
    api = start_api("x", limits=ApiLimits(connections=5))
    idle = [connect(api) for _ in range(12)]
    assert api.completed(max_tokens=1)
    assert len(api.server._server.server_state.connections) <= 5
    for connection in idle:
        connection.close()


def test_connections_that_are_answered_make_none(start_api: Start) -> None:
    api = start_api("x" * 3000, limits=ApiLimits(connections=2))
    api.engine.hold()
    held = [raw(api, CHAT, {"messages": USER}) for _ in range(2)]
    api.engine.wait_for(lambda: len(api.engine._live) == 2)
    with connect(api) as third:
        third.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 503 " in reply(third)
    for connection in held:
        connection.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 8000 + b"\r\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
        b"Content-Length: 4\r\n\r\nabc",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"NONSENSE\r\n\r\n",
    ],
)
def test_what_is_no_request_is_closed(start_api: Start, head: bytes) -> None:
    api = start_api("x")
    with connect(api) as connection:
        connection.sendall(head)
        connection.shutdown(socket.SHUT_WR)
        answer = reply(connection)
    assert answer[:13] in (b"", b"HTTP/1.1 400 ", b"HTTP/1.1 431 ")
    assert answer.count(b"HTTP/1.1") <= 1
    assert api.completed(max_tokens=1)


def test_chunks_and_a_length_are_one_request(start_api: Start) -> None:
    api = start_api("x")
    with connect(api) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
            b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        connection.shutdown(socket.SHUT_WR)
        answer = reply(connection)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"not both" in answer


def test_a_client_may_ask_whether_to_go_on(start_api: Start) -> None:
    api = start_api("x")
    body = json.dumps({"model": MODEL, "prompt": "a"}).encode()
    with connect(api) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert b" 200 OK" in connection.recv(65536)


def test_reading_happens_beside_the_streams(start_api: Start) -> None:
    """A long prompt's reading holds a thread, not the loop."""
    api = start_api("x" * 10)
    reading, go_on = threading.Event(), threading.Event()
    original = type(api.chat.tokenizer).encode

    def slow(self: Any, text: str) -> list[int]:
        if text == "slow":
            reading.set()
            assert go_on.wait(10)
        return original(self, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(api.chat.tokenizer), "encode", slow)
        late: list[Any] = []
        other = threading.Thread(target=lambda: late.append(api.completed(prompt="slow")))
        other.start()
        assert reading.wait(10)
        assert api.completed(prompt="fast", max_tokens=2)["choices"][0]["text"] == "xx"
        assert not late
        go_on.set()
        other.join(10)
    assert late


def test_limits_are_values(tmp_path: Path) -> None:
    assert replace(ApiLimits(), body_s=1).body_s == 1


def test_a_refusal_keeps_its_connection(start_api: Start) -> None:
    api = start_api("x")
    for _ in range(3):
        response = api.post("completions", prompt="")
        assert response.status_code == 400
        assert "connection" not in response.headers
    assert api.completed(max_tokens=1)
    assert api.server._server.server_state.total_requests == 4
    assert len(api.server._server.server_state.connections) == 1
