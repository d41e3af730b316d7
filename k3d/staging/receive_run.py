"""`k3d bank receive`: the receiving side of one spark, as a process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from k3d.errors import ConfigError
from k3d.placement.pod import Node, load_pod
from k3d.staging.receive import Receiver
from k3d.staging.stage import PORT_ABOVE_FABRIC
from k3d.store.home import banks_directory, read_secret, resolve_home

SCHEMA = "k3d.bank-receive/1"
SWITCH_S = 1e-4
"""Hashing must not keep the thread that empties the socket waiting for Python's usual 5 ms."""


def run_receiver(home: Path, options: Namespace, put: Callable[[dict[str, Any]], None]) -> None:
    """Receive into HOME/banks/NAME until told to end; says first where it listens."""
    secret = read_secret(home)
    pod = load_pod(options.pod, home)
    pod.slice_index(options.name)
    host, port = _place(options.listen, pod.node(options.name))
    folder = banks_directory(resolve_home(home)) / options.name
    receiver = Receiver(folder, options.name, secret, host, port)

    def leave(_signal: int, _frame: FrameType | None) -> None:
        receiver.stop()

    signal.signal(signal.SIGTERM, leave)
    sys.setswitchinterval(SWITCH_S)
    if options.watch_stdin:
        threading.Thread(target=_watch_stdin, args=(receiver,), daemon=True).start()
    put({"schema": SCHEMA, "node": options.name, "address": receiver.address, "pid": os.getpid()})
    try:
        receiver.run(options.transfers)
    finally:
        receiver.close()


def _watch_stdin(receiver: Receiver) -> None:
    """End with whoever started this: its end of the pipe closes however it ended."""
    while sys.stdin.buffer.read(1):
        pass
    receiver.stop()


def _place(listen: str | None, node: Node) -> tuple[str, int]:
    if listen is None:
        port = node.fabric_port + PORT_ABOVE_FABRIC if node.fabric_port else 0
        return node.host, port
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise ConfigError(f"{listen[:80]!r} is no address", hint="write HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)
