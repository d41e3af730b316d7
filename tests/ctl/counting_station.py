"""A fake Station that carries out what is asked of it, and counts; and a k3d that measures."""

from __future__ import annotations

import json
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.ctl.fake_daemons import FakeDaemon

MADE = {
    "schema": "k3d.placement-swap/1", "name": "contiguous", "intent": None, "copies": 0,
    "parked": 0, "size_bytes": 0, "rate_bytes_s": 1, "seconds": {"value": 0.0}, "token": "t",
    "epoch": 1, "waves": [], "tiers": [], "nodes": [], "short": 0,
}  # fmt: skip
TRACE = {
    "schema": "k3d.trace/1", "state": "done", "path": "/x", "tokens": 5, "passes": 5,
    "seconds": 0.1, "left_out": 0, "reason": None,
}  # fmt: skip
ANSWERS: dict[str, dict[str, Any]] = {
    "/placement/swap": MADE,
    "/placement/rollback": MADE,
    "/placement/replace": MADE,
    "/placement/abort": {"schema": "k3d.placement-abort/1", "intent": "i", "state": "aborted"},
    "/trace/record": TRACE,
    "/lanes/cancel": {"schema": "k3d.lanes-cancel/1", "state": "ending"},
}
MEASURED = {
    "schema": "k3d.bench-tiers/1", "provenance": "measured", "simulated": True, "pod": "embedded",
    "sparks": 1, "contention": 0.5, "environment": {}, "tiers": {},
}  # fmt: skip


class CountingStation(FakeDaemon):
    """Counts what it is asked to change, by path."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, "station", "station")
        self.changed: Counter[str] = Counter()
        self.RequestHandlerClass = _Handler


class _Handler(BaseHTTPRequestHandler):
    server: CountingStation

    def do_GET(self) -> None:
        answers = {"/trace": TRACE, "/status": self.server.status()}
        self._send(answers.get(self.path))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/receipts":
            self._send({"schema": "k3d.receipt/1", "id": "r1"})
            return
        self.server.changed[self.path] += 1
        self._send(ANSWERS.get(self.path))

    def _send(self, document: dict[str, Any] | None) -> None:
        body = json.dumps(document or {}).encode()
        self.send_response(404 if document is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name in http.server)
        """Nothing: the test's output is not the place."""


def measuring_k3d(folder: Path) -> tuple[str, Path]:
    """A command that prints a measurement and adds a line to a file; the command and the file."""
    return counting_k3d(folder, MEASURED)


def counting_k3d(folder: Path, document: dict[str, Any]) -> tuple[str, Path]:
    """A command that prints a document and adds a line to a file unless it only plans; the command
    and the file."""
    counts, program = folder / "counted", folder / "k3d-counts"
    counted = f'case " $* " in *" --dry-run "*) ;; *) echo once >> {counts} ;; esac'
    program.write_text(f"#!/bin/sh\n{counted}\necho '{json.dumps(document)}'\n")
    program.chmod(0o755)
    return str(program), counts
