"""A Station's link to a spark that sums, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from k3d.fabric import Facts, Link, Record, connect
from k3d.station.membership import LinkTimes, SparkLink
from tests.fabric.summing_spark import (
    CAPACITY_BYTES,
    QUICK,
    SECRET,
    records,
    station_facts,
)

TRANSPORTS = ["shm", "tcp"]
PATIENT = replace(QUICK, hop_s=600.0, ping_s=600.0, ping_every_s=600.0)
"""With these only the end of a process can end its link."""


@contextmanager
def link_to(
    where: Callable[[float], Link],
    *,
    facts: Facts | None = None,
    secret: bytes = SECRET,
    times: LinkTimes = QUICK,
    fills: list[int] | None = None,
) -> Iterator[SparkLink]:
    """A started SparkLink; `fills` gets an entry at every refill."""

    def source() -> Iterator[Record]:
        if fills is not None:
            fills.append(len(fills))
        return records()

    link = SparkLink(facts or station_facts(), where, secret, source, times=times)
    link.start()
    try:
        yield link
    finally:
        link.close()


def at(transport: str, address: Callable[[], str]) -> Callable[[float], Link]:
    return lambda timeout_s: connect(transport, address(), timeout_s, capacity_bytes=CAPACITY_BYTES)


def lost(link: SparkLink) -> Callable[[], bool]:
    return lambda: link.snapshot().state == "lost"
