"""Steps of one swap, each noted in state.db when it begins and when it is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns

from k3d.store.swaps import SwapStore


@dataclass
class Step:
    """What a step under way has done."""

    copies: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class StepLog:
    """Steps of one wave."""

    store: SwapStore
    intent: str
    wave: int
    epoch: int
    station: str

    def begin(self, kind: str, node: str) -> int:
        """The number of a step that begins now."""
        return self.store.begin_step(self.intent, self.wave, self.epoch, kind, node)

    def end(self, number: int, took_ns: int, copies: int = 0, size_bytes: int = 0) -> None:
        self.store.end_step(self.intent, number, took_ns // 1000, copies, size_bytes)

    def note(self, message: str) -> None:
        """An event of the swap."""
        self.store.note(message, intent=self.intent, wave=self.wave)

    @contextmanager
    def step(self, kind: str, node: str) -> Iterator[Step]:
        """A step that is done when the block ends well."""
        number, began_ns, step = self.begin(kind, node), perf_counter_ns(), Step()
        yield step
        self.end(number, perf_counter_ns() - began_ns, step.copies, step.size_bytes)
