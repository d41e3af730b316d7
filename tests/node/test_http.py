"""The HTTP face of a node under callers that say nothing, and the descriptors it may have."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from k3d.node import connections
from k3d.node.http import NodeServer, bind

TOKEN = "a-token"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a node that answers /health with its number of requests."""
    asked: list[int] = []

    def health() -> dict[str, object]:
        asked.append(len(asked))
        return {"asked": len(asked)}

    listener = bind("127.0.0.1", 0)
    server = NodeServer(listener, TOKEN, health)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.port
    server.stop()
    thread.join(10.0)
    assert not thread.is_alive()
    listener.close()


def ask(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/health", headers=HEADERS)
    with connection.getresponse() as response:
        response.read()
        return response.status


def caller(stack: ExitStack, port: int, said: bytes = b"") -> socket.socket:
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10.0))
    sock.sendall(said)
    return sock


def ended(sock: socket.socket) -> bool:
    """Wait for the end of a connection."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", b"GET /health HTTP/1.1\r\nHost: station\r\nX-Slow:"])
def test_a_connection_without_a_request_is_ended(
    port: int, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 0.05)
    with ExitStack() as stack:
        assert ended(caller(stack, port, said))


def test_callers_that_say_nothing_keep_nobody_out(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 600.0)
    kept = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    assert ask(kept) == 200
    with ExitStack() as stack:
        silent = [caller(stack, port) for _ in range(30)]
        newcomer = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
        assert ask(newcomer) == 200
        assert all(ended(sock) for sock in silent[:20]), "the longest silent made room"
        assert ask(kept) == 200, "one that asked before is left alone"
        newcomer.close()
    kept.close()


def test_where_everybody_asks_a_newcomer_is_served_too(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    callers = [http.client.HTTPConnection("127.0.0.1", port, timeout=10.0) for _ in range(4)]
    for connection in [*callers, *callers]:
        assert ask(connection) == 200
    for connection in callers:
        connection.close()


def test_a_daemon_takes_the_descriptors_it_may_have() -> None:
    script = """
import resource
from k3d.main import MOST_DESCRIPTORS, _take_descriptors
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
_take_descriptors()
most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
