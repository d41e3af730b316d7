"""The transports that have addresses, by the name a pod description gives them.

`inproc` has no address and is not among them: a spark inside the Station is handed over as a link.
Verbs will be one more entry.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from k3d.errors import ConfigError
from k3d.fabric import shm, tcp
from k3d.fabric.frame_buffers import DEFAULT_CAPACITY_BYTES
from k3d.fabric.link import Link, Listener


class Connect(Protocol):
    def __call__(self, address: str, timeout_s: float, *, capacity_bytes: int) -> Link: ...


class Listen(Protocol):
    def __call__(self, address: str, *, capacity_bytes: int) -> Listener: ...


class Transport(NamedTuple):
    """How to reach a spark and how a spark is reached."""

    connect: Connect
    listen: Listen


TRANSPORTS: dict[str, Transport] = {
    "shm": Transport(shm.connect, shm.listen),
    "tcp": Transport(tcp.connect, tcp.listen),
}


def connect(
    transport: str, address: str, timeout_s: float, *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES
) -> Link:
    """A link to the spark at `address`. Raises FabricError when it cannot be reached."""
    return _named(transport).connect(address, timeout_s, capacity_bytes=capacity_bytes)


def listen(
    transport: str, address: str = "", *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES
) -> Listener:
    """A listener at `address`; a free address when empty. Raises FabricError when it is taken."""
    return _named(transport).listen(address, capacity_bytes=capacity_bytes)


def _named(transport: str) -> Transport:
    found = TRANSPORTS.get(transport)
    if found is None:
        known = ", ".join(sorted(TRANSPORTS))
        raise ConfigError(
            f"transport {transport!r} has no addresses", hint=f"between processes use {known}"
        )
    return found
