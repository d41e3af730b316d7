"""One GET from a daemon for a command that starts cold.

Plain sockets and json: a whole HTTP client takes ten times as long to import as an answer takes to
come. What is not a plain answer is left to it (k3ctl.client.daemon), errors above all.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from k3d.errors import K3Error
from k3d.store.paths import run_directory

ANSWER_S = 5.0
RECEIVED_BYTES = 1 << 16


def quick_get(
    home: Path, path: str, schema: str, *, timeout_s: float = ANSWER_S
) -> dict[str, Any] | None:
    """The document of a route, or None for whatever is not plainly one of that schema."""
    from k3d.store.secret import http_token, read_secret

    try:
        station = _station(home)
        if station is None:
            return None
        answer = plain_get(*station, path, http_token(read_secret(home)), timeout_s)
        document = json.loads(answer) if answer is not None else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError, K3Error):
        return None
    return document if isinstance(document, dict) and document.get("schema") == schema else None


def quick_status(home: Path) -> dict[str, Any] | None:
    """The state of the pod, or None where more must be asked.

    The Station's document with `home` for its `schema`; where nothing runs, one that says so.
    """
    if nothing_runs(home):
        return {
            "home": str(home),
            "pod": None,
            "state": "down",
            "reason": f"no Station runs in {home}",
            "nodes": [],
        }
    document = quick_get(home, "/status", "k3d.status/1")
    if document is None:
        return None
    del document["schema"]
    return {"home": str(home), **document}


def nothing_runs(home: Path) -> bool:
    """Whether no daemon of the home has said anything about itself: there is no run file."""
    try:
        with os.scandir(run_directory(home)) as entries:
            return not any(entry.name.endswith(".json") for entry in entries)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _station(home: Path) -> tuple[str, int] | None:
    """Where the running Station listens; None without one, and with a file that is not one."""
    from k3d.store.start_ticks import process_start_ticks

    found = None
    for path in run_directory(home).glob("*.json"):
        if path.stem == "pod":
            continue
        run = json.loads(path.read_bytes())
        if run["role"] == "station" and process_start_ticks(run["pid"]) == run["start_time_ticks"]:
            found = (str(run["http_host"]), int(run["http_port"]))
    return found


def plain_get(host: str, port: int, path: str, token: str, timeout_s: float) -> bytes | None:
    """The body of a whole answer with status 200, else None. Raises TimeoutError when nothing came
    for `timeout_s`, else OSError for what keeps it from being asked."""
    import socket

    request = (
        f"GET {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        "Connection: close\r\n\r\n"
    )
    # A name that is text would be encoded by a codec that takes longer to import than all this.
    at: Any = host.encode("ascii") if host.isascii() else host
    with socket.create_connection((at, port), timeout_s) as link:
        link.sendall(request.encode("ascii"))
        received = bytearray()
        while piece := link.recv(RECEIVED_BYTES):
            received += piece
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    named = dict(field.lower().split(":", 1) for field in fields if ":" in field)
    whole = named.get("content-length", "").strip() == str(len(body))
    return body if whole and status.split()[1:2] == ["200"] else None
