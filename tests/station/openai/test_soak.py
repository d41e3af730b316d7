"""Many clients at once: nothing leaks, nothing hangs, and nobody gets another answer than alone."""

from __future__ import annotations

import gc
import json
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3d.model.chat_format import ChatFormat
from k3d.station.openai.chat_answer import ChatAnswer
from k3d.station.openai.exchange import Exchange
from k3d.station.openai.grammar import GrammarConstraint
from k3d.station.openai.limits import Body
from k3d.station.openai.running import Part, Running
from k3d.station.openai.text_answer import TextAnswer
from tests.station.conftest import RunningPod
from tests.station.openai.answers import END, ids_of
from tests.station.openai.conftest import Api
from tests.station.openai.soak import MODEL, Soak

RSS_ROOM = 1.05
OF_A_REQUEST = (Running, Part, Exchange, Body, GrammarConstraint, ChatAnswer, TextAnswer)


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def settled(pod: RunningPod, pid: int, before: int) -> bool:
    """Whether the Station is as it was: no request, no lane, no connection."""
    requests = pod.status()["requests"]
    return (requests["running"], requests["waiting"]) == (0, 0) and descriptors(pid) <= before


def soak(pod: RunningPod, clients: int, requests: int, seed: int, timeout_s: float) -> Soak:
    """Run it, and check what must hold whatever was asked."""
    status = pod.status()
    pid = pod.processes["station"].pid
    before = descriptors(pid)
    run = Soak(status["api"]["url"], clients, requests, seed)
    run.run(timeout_s)
    assert not run.wrong, run.wrong[:5]
    assert len(run.answered) + run.refused + run.left == requests
    pod.wait("rest", lambda: settled(pod, pid, before), 20)
    return run


def spot_check(run: Soak, count: int, seed: int) -> None:
    """Some of the answers again, alone."""
    chosen = random.Random(seed).sample(run.answered, min(count, len(run.answered)))
    for asked, answer in chosen:
        assert run.again(asked) == answer, asked


def test_nothing_is_kept_of_requests_that_are_over(
    start_api: Callable[..., Api], byte_chat: ChatFormat, seed: int
) -> None:
    api = start_api(ids_of(byte_chat, "some text, no more" + END), block=3, lanes=8)
    run = Soak(api.server.url, clients=6, requests=150, seed=seed)
    run.run(60)
    assert not run.wrong, run.wrong[:5]
    api.engine.wait_for(lambda: not api.engine._live)
    api.engine.submitted.clear()
    api.chatted()  # what the last request left in the server's own hands is this one's now
    api.engine.submitted.clear()
    gc.collect()
    kept = [type(each).__name__ for each in gc.get_objects() if type(each) in OF_A_REQUEST]
    assert len(kept) <= len(OF_A_REQUEST), kept


def test_a_short_soak(inproc_pod: RunningPod, seed: int) -> None:
    run = soak(inproc_pod, clients=8, requests=60, seed=seed, timeout_s=240)
    spot_check(run, 6, seed)


@pytest.mark.campaign
@pytest.mark.timeout(5400)
def test_a_thousand_requests_of_32_clients(inproc_pod: RunningPod, seed: int) -> None:
    pid = inproc_pod.processes["station"].pid
    first = soak(inproc_pod, clients=32, requests=1000, seed=seed, timeout_s=2400)
    spot_check(first, 40, seed)
    slow = slow_readers(first.url, 6)
    second = soak_beside(inproc_pod, slow, seed + 1000)
    spot_check(second, 20, seed)
    warm = rss_bytes(pid)  # by now the caches are as large as they get
    soak(inproc_pod, clients=32, requests=200, seed=seed + 2000, timeout_s=900)
    assert rss_bytes(pid) <= warm * RSS_ROOM


def soak_beside(pod: RunningPod, slow: list[socket.socket], seed: int) -> Soak:
    """Requests beside clients that do not read what they asked for."""
    run = Soak(pod.status()["api"]["url"], 32, 200, seed)
    run.run(1200)
    assert not run.wrong, run.wrong[:5]
    for connection in slow:
        connection.close()
    pod.wait("rest", lambda: pod.status()["requests"]["running"] == 0, 60)
    return run


def slow_readers(url: str, count: int) -> list[socket.socket]:
    """Connections that asked for long streams and read nothing."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    body: dict[str, Any] = {
        "model": MODEL, "prompt": "x", "stream": True, "max_tokens": 2000, "logprobs": 20,
        "ignore_eos": True,
    }  # fmt: skip
    data = json.dumps(body).encode()
    connections: list[socket.socket] = []
    for _ in range(count):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        connections.append(connection)
    return connections
