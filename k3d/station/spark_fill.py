"""Filling a spark: out of its own bank what that has, the rest over the link."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

from k3d.fabric.frames import HEADER_BYTES, Buffer, Frame, Kind
from k3d.fabric.records import (
    RECORD_HEADER,
    Name,
    Record,
    batches,
    name_batches,
    names_part,
    read_lacking,
)


class SliceSource(Protocol):
    """The slices that one spark is to hold: what they are, and their bytes."""

    def names(self) -> Iterable[Name]:
        """All of them, in any order."""
        ...

    def records(self, names: Iterable[Name]) -> Iterable[Record]:
        """The bytes of some of them."""
        ...


@dataclass(frozen=True)
class Filling:
    """How a spark came by its slices, so far. Bytes are of frames, headers and all.

    `filled` came out of the spark's own bank, `sent` over the link.
    """

    filled: int = 0
    sent: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    time_s: float = 0.0

    @property
    def records(self) -> int:
        return self.filled + self.sent


Ask = Callable[[Kind, Kind, int, list[Buffer]], Frame]
"""Sends a frame of a kind with rows and parts, and returns its answer of another."""


class SparkFill:
    """One filling. `ask` does one exchange on the link and may raise to end it."""

    def __init__(self, ask: Ask, node: str, slice_bytes: int, limit_bytes: int) -> None:
        self.count = Filling()
        self._ask = ask
        self._node = node
        self._slice_bytes = slice_bytes
        self._limit_bytes = limit_bytes
        self._began_s = perf_counter()

    def send(self, records: Iterable[Record]) -> None:
        """Every record as bytes."""
        for batch in batches(records, self._slice_bytes, self._limit_bytes):
            self._exchange(Kind.LOAD, Kind.LOADED, batch.count, batch.parts)
            self.count = replace(self.count, sent=self.count.sent + batch.count)

    def name(self, names: Iterable[Name]) -> list[Name]:
        """Let the spark fill slots from its bank; the names of what it has not."""
        lacking: list[Name] = []
        most = self._limit_bytes // RECORD_HEADER.size
        for batch in name_batches(names, self._slice_bytes, most):
            frame = self._exchange(Kind.FILL, Kind.FILLED, len(batch), [names_part(batch)])
            found = read_lacking(frame.payload, len(batch), self._node)
            lacking += [batch[index] for index in found]
            filled = self.count.filled + len(batch) - len(found)
            self.count = replace(self.count, filled=filled)
        return lacking

    def _exchange(self, kind: Kind, answer: Kind, rows: int, parts: list[Buffer]) -> Frame:
        frame = self._ask(kind, answer, rows, parts)
        sent = HEADER_BYTES + sum(memoryview(part).nbytes for part in parts)
        self.count = replace(
            self.count,
            sent_bytes=self.count.sent_bytes + sent,
            received_bytes=self.count.received_bytes + HEADER_BYTES + len(frame.payload),
            time_s=perf_counter() - self._began_s,
        )
        return frame
