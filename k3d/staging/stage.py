"""Staging: one sender, every spark's slice to its spark, all at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import msgspec

from k3d.errors import ConfigError, FabricError, K3Error
from k3d.experts.bank_file import Bank
from k3d.placement.pod import Node, PodDescription
from k3d.staging.pace import Pace
from k3d.staging.progress import EVERY_S, Emit, eta_of, rate_of
from k3d.staging.send import Sent, send_bank

PORT_ABOVE_FABRIC = 1
"""Receivers of a described pod listen on the port after the fabric's."""

Phase = Literal["waiting", "checking", "sending", "done", "failed"]


@dataclass
class StagedNode:
    """One node's transfer while it goes on and after it ended. `total_bytes` is the most that it
    takes."""

    node: str
    path: Path
    total_bytes: int
    phase: Phase = "waiting"
    moved_bytes: int = 0
    sent: Sent | None = None
    error: K3Error | None = None
    began_s: float = field(default_factory=monotonic)

    def line(self) -> dict[str, Any]:
        rate = rate_of(self.moved_bytes, monotonic() - self.began_s)
        total = self.moved_bytes if self.phase == "done" else self.total_bytes
        return {
            "node": self.node,
            "file": self.path.name,
            "phase": self.phase,
            "bytes": self.moved_bytes,
            "total_bytes": total,
            "bytes_per_s": rate,
            "eta_s": eta_of(total - self.moved_bytes, rate),
        }


def stage(
    banks: Mapping[str, Path],
    addresses: Mapping[str, str],
    secret: bytes,
    pace: Pace,
    emit: Emit,
    *,
    look_only: bool = False,
) -> list[StagedNode]:
    """Send each node its bank, all nodes at once. What became of each is in its StagedNode."""
    with ExitStack() as stack:
        staged, threads = [], []
        for node, path in banks.items():
            bank = Bank(path)
            stack.callback(bank.close)
            layout = bank.manifest.layout
            most = layout.size_bytes - layout.data_start + layout.packed_bytes
            one = StagedNode(node, path, most)
            staged.append(one)
            arguments = (one, bank, addresses[node], secret, pace, look_only)
            thread = threading.Thread(target=_send, args=arguments, name=f"to-{node}", daemon=True)
            threads.append(thread)
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(EVERY_S)
                emit({"type": "progress", "phase": "stage", "nodes": [n.line() for n in staged]})
        return staged


def _send(
    one: StagedNode, bank: Bank, address: str, secret: bytes, pace: Pace, look_only: bool
) -> None:
    def moved(count: int) -> None:
        one.phase = "sending"
        one.moved_bytes += count

    def checking(_done: int, _of: int) -> None:
        one.phase = "checking"
        one.began_s = monotonic()

    try:
        one.sent = send_bank(
            bank, one.node, address, secret, pace, moved, look_only=look_only, checking=checking
        )
        one.phase = "done"
    except K3Error as error:
        one.error, one.phase = error, "failed"
    except OSError as error:
        one.error = K3Error(f"{one.node}: {error.strerror or error}")
        one.phase = "failed"


def receiver_address(node: Node) -> str | None:
    """Where a node of another machine receives, as its description says; None on loopback."""
    if node.loopback:
        return None
    if node.fabric_port == 0:
        raise ConfigError(
            f"{node.name} has no fabric_port, so its receiver's port is not known",
            hint=f"name it: --to {node.name}=HOST:PORT",
        )
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"{host}:{node.fabric_port + PORT_ABOVE_FABRIC}"


@contextmanager
def local_receivers(home: Path, pod: str, nodes: list[str]) -> Iterator[dict[str, str]]:
    """Receivers of this machine's sparks, as processes that end with the context: addresses."""
    with ExitStack() as stack:
        processes = {node: _start(home, pod, node) for node in nodes}
        for process in processes.values():
            stack.callback(_end, process)
        yield {node: _address(node, process) for node, process in processes.items()}


def _start(home: Path, pod: str, node: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "k3d.main", "bank", "receive", "--home", str(home)]
    command += ["--pod", pod, "--name", node, "--listen", "127.0.0.1:0", "--watch-stdin"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def _address(node: str, process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        return str(msgspec.json.decode(line, type=dict)["address"])
    except (msgspec.MsgspecError, KeyError):
        raise FabricError(
            f"the receiver of {node} did not start", hint=f"try: k3d bank receive --name {node}"
        ) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.terminate()
    try:
        process.wait(timeout=10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def chosen_sparks(pod: PodDescription, nodes: list[str] | None) -> list[str]:
    """Names of the sparks to send to. Raises NotFound for one that is not in the pod."""
    for name in nodes or ():
        pod.slice_index(name)
    return [spark.name for spark in pod.sparks if nodes is None or spark.name in nodes]
