"""A k3d that speaks HTTP and computes nothing: for testing k3ctl without torch.

As a program it takes k3d's arguments. What it answers is read at every request from
HOME/fake/NODE.json, so that a test changes it while it runs:

    health, status  keys that replace those of the default answers
    chat            list of events to stream
    chat_by_rows    the same by draft_rows ("1", "None"...), where there is one
    chat_gap_s      pause between the events
    end             [exit code, sentence]: end with it instead of starting
    ignore_term     do not end on SIGTERM
    silent          accept connections and never answer
    answers         documents of other paths, GET or POST, without their query
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from k3d.placement.pod import load_pod
from k3d.store.home import RunFile, http_token, read_secret

HOPS = {"p50": 120, "p99": 480, "count": 9000}

BENCH = {
    "schema": "k3d.bench-pod/1",
    "provenance": "measured",
    "simulated": True,
    "pod": "embedded",
    "sparks": 4,
    "tokens_per_s": {"shm": 12.5, "inproc": 20.0, "local": 25.0},
    "ratio": {"inproc": 0.625, "local": 0.5},
    "hop_us": {
        "shm": {"hbm": {"p50": 250.0, "p99": 900.0}, "spark": {"p50": 1500.0, "p99": 2500.0}},
        "local": {"hbm": {"p50": 300.0, "p99": 800.0}, "spark": None},
    },
    "environment": {"cores": 2},
}


def script_path(home: Path, node: str) -> Path:
    return home / "fake" / f"{node}.json"


def write_script(home: Path, node: str, **script: Any) -> None:
    """Say what a fake node does from now on."""
    path = script_path(home, node)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(script))
    temporary.replace(path)


class FakeDaemon(ThreadingHTTPServer):
    """One node. It serves in a thread after start(), and publishes its run file."""

    daemon_threads = True

    def __init__(self, home: Path, name: str, role: str, pod: str = "embedded", port: int = 0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.home, self.node, self.role = home, name, role
        self.token = http_token(read_secret(home))
        self.requests: list[dict[str, Any]] = []
        self.looks = 0
        self.receipts: list[dict[str, Any]] = []
        self.run_file = RunFile.of_this_process(
            name=name,
            role=role,
            pod=pod,
            http_host="127.0.0.1",
            http_port=self.server_address[1],
            fabric_address=None,
        )

    def start(self) -> None:
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        self.run_file.write(self.home)

    def stop(self) -> None:
        self.run_file.remove(self.home)
        self.shutdown()
        self.server_close()

    @property
    def script(self) -> dict[str, Any]:
        try:
            return json.loads(script_path(self.home, self.node).read_text())
        except FileNotFoundError:
            return {}

    def health(self) -> dict[str, Any]:
        return {
            "schema": "k3d.health/1",
            "node": self.node,
            "role": self.role,
            "state": "healthy",
            "reason": None,
            "version": "0.1.0",
            "uptime_s": 12.5,
            "progress_age_s": 0.1,
        }

    def engine(self) -> dict[str, Any]:
        """Counts grow with every look: rounds of each number of rows, a pass of r rows taking
        10 + 2 r ms and a block of drafts 3 ms."""
        self.looks += 1
        n, rows = 100 * self.looks, range(10)
        return {
            "schema": "k3d.engine/1", "provenance": "measured", "context": 2048, "lanes": 8,
            "chunk": 256, "reuses_prefixes": True, "draft_block": 7, "synthetic_acceptance": None,
            "counts": {
                "running": 0, "waiting": 0, "finished": n, "failed": 0, "cancelled": 0,
                "rounds": n, "verified": [n, n, n, 0], "accepted": [n * 3 // 4, n // 2, n // 4, 0],
                "rows": [0, *[n // 10 for _ in rows]], "decode_s": n * 0.02, "draft_s": n * 0.003,
                "decode_tokens": 2 * n,
                "cost": {"fixed_s": 0.01, "row_s": 0.002, "draft_s": 0.003, "measured": True},
            },
        }  # fmt: skip

    def status(self) -> dict[str, Any]:
        return {
            "schema": "k3d.status/1",
            "pod": "embedded",
            "state": "healthy",
            "reason": None,
            "version": "0.1.0",
            "model": {"name": "k3-mini", "digest": "ab" * 32, "layers": 13, "experts": 64,
                      "dtype": "bf16"},
            "epoch": 1,
            "transport": "shm",
            "placement": "layer-balanced",
            "policy": "layer-balanced",
            "provenance": "measured",
            "nodes": [
                _node("station", "station", None, 461, 2304),
                *(_node(f"spark-{i + 1}", "spark", f"{i}/4", 307, 768) for i in range(4)),
            ],
            "tiers": [
                _tier("hbm", 154, 0.21), _tier("rtx", 77, 0.1), _tier("grace", 230, 0.29),
                _tier("spark", 307, 0.4),
            ],
            "tokens_per_s": {"decode": 21.4, "prompt": 180.0},
            "requests": {"running": 0, "waiting": 0, "finished": 3, "failed": 0},
        }  # fmt: skip


def _node(name: str, role: str, slice_name: str | None, used: int, slots: int) -> dict[str, Any]:
    return {
        "name": name, "role": role, "state": "healthy", "reason": None, "pid": 1,
        "slice": slice_name, "slots_used": used, "slots": slots, "rss_bytes": 410_000_000,
        "progress_age_s": 0.2, "simulated": True,
    }  # fmt: skip


def _tier(name: str, experts: int, hit_share: float) -> dict[str, Any]:
    return {
        "name": name, "experts": experts, "slots": 768, "hit_share": hit_share, "hop_us": HOPS,
        "simulated": True,
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    server: FakeDaemon

    def do_GET(self) -> None:
        self._answer(
            {
                "/health": self.server.health,
                "/status": self.server.status,
                "/engine": self.server.engine,
            }
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._admitted():
            return
        if self.path == "/chat":
            request = json.loads(body)
            self.server.requests.append(request)
            self._stream(request)
        elif self.path == "/tokens":
            self._send(200, {"schema": "k3d.tokens/1", "ids": list(body)})
        elif self.path == "/receipts":
            self.server.receipts.append(json.loads(body))
            self._send(200, {"schema": "k3d.receipt/1", "id": f"r{len(self.server.receipts)}"})
        elif self.path == "/shutdown":
            self._send(200, {"schema": "k3d.shutdown/1"})
            threading.Thread(target=self.server.stop).start()
        elif self.path in self.server.script.get("answers", {}):
            self.server.requests.append(json.loads(body))
            self._send(200, self.server.script["answers"][self.path])
        else:
            self._send(404, {})

    def _answer(self, answers: dict[str, Any]) -> None:
        script = self.server.script
        if script.get("silent"):
            time.sleep(30)
            return
        if not self._admitted():
            return
        kind = self.path.strip("/")
        others = script.get("answers", {})
        if self.path.partition("?")[0] in others:
            self._send(200, others[self.path.partition("?")[0]])
        elif self.path not in answers:
            self._send(404, {})
        elif kind + "_status" in script:
            self._send(script[kind + "_status"], script.get(kind, {}))
        else:
            self._send(200, {**answers[self.path](), **script.get(kind, {})})

    def _admitted(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {self.server.token}":
            return True
        self._send(401, {})
        return False

    def _stream(self, request: dict[str, Any]) -> None:
        script = self.server.script
        by_rows = script.get("chat_by_rows", {}).get(str(request.get("draft_rows")))
        events = by_rows or script.get("chat") or [
            *({"type": "token", "id": i, "text": t} for i, t in enumerate(("It ", "lists ", "é."))),
            {"type": "done", "finish_reason": "stop",
             "usage": {"prompt_tokens": 7, "completion_tokens": 3},
             "timing": {"prompt_s": 0.1, "decode_s": 0.2, "tokens_per_s": 15.0},
             "cached_tokens": 4, "rounds": 1, "drafted": 3, "accepted": 2,
             "acceptance_length": 3.0},
        ]  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        try:
            for event in events:
                self.wfile.write(json.dumps(event).encode() + b"\n")
                self.wfile.flush()
                time.sleep(script.get("chat_gap_s", 0))
        except (BrokenPipeError, ConnectionResetError):
            (self.server.home / "fake-cancelled").touch()
        self.close_connection = True

    def _send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name in http.server)
        """Nothing: the test's output is not the place."""


def check(cases: Path) -> int:
    """Answer every case as the Station does, in one pod; the last of the long ones differs when
    the environment says so."""
    asked = json.loads(cases.read_text())
    print(json.dumps({"type": "skipped", "name": "tcp", "reason": "no ports"}))
    print(json.dumps({"type": "pod", "name": "small", "long": True}))
    for number, _ in enumerate(asked["long"]):
        differs = os.environ.get("FAKE_DIFFERENCE") and number == len(asked["long"]) - 1
        ids = [0, 1, 9] if differs else [0, 1, 2]
        blank = [None] * 3
        line = {"type": "answer", "case": number, "ids": ids, "logprobs": blank, "margins": blank}
        print(json.dumps(line))
    print(json.dumps({"type": "end", "name": "small", "preempted": 2}))
    return 0


def main() -> int:
    """Run as k3d would."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["station", "spark", "bench", "check"])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--pod")
    parser.add_argument("--name", default="station")
    parser.add_argument("--cases", type=Path)
    options, rest = parser.parse_known_args()
    if options.role == "bench":
        print(json.dumps(BENCH))
        return 0
    if options.role == "check":
        return check(options.cases)
    pod = load_pod(options.pod, options.home)
    node = pod.node(options.name)
    server = FakeDaemon(options.home, options.name, options.role, pod.name, node.http_port)
    if "end" in server.script:
        code, sentence = server.script["end"]
        print(f"k3d {options.role}: {sentence}", file=sys.stderr)
        return code
    if server.script.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.stop).start())
    started = {"ts": time.time(), "level": "info", "node": options.name, "message": "serving"}
    print(json.dumps({**started, "arguments": rest}), flush=True)
    server.run_file.write(options.home)
    server.serve_forever(poll_interval=0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
