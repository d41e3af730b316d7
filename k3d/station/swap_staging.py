"""Copies of one wave, put beside what is served: local tiers, then every spark, then its commit.

A spark is asked first for what it has in a bank of its own, and is sent the rest; one that had
nothing of what it was asked first is asked no more. A spark that is lost in the middle has lost its
copies, or drops them when it joins again: the wave waits for it and copies to it from the start. A
wave after which no expert is on the sparks waits for none of them. Nothing that is staged is used
before the turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns

from blake3 import blake3

from k3d.errors import K3Error, NodeLost
from k3d.experts.bank import Bank, slice_of
from k3d.experts.worker import SliceWorker
from k3d.fabric.control import Commit, encode
from k3d.fabric.frames import Buffer, Frame, Kind
from k3d.fabric.records import (
    RECORD_HEADER,
    Name,
    Record,
    batches,
    name_batches,
    names_part,
    read_lacking,
    slots_part,
)
from k3d.placement.pod import SPARK_TIER
from k3d.placement.swap_plan import Move, Wave
from k3d.station.spark_link import SparkLink
from k3d.station.swap_pace import Pace
from k3d.station.swap_progress import SwapProgress
from k3d.station.swap_steps import StepLog

LOST_POLL_S = 0.1
MOST_FAILURES = 5
"""A spark that fails as often without taking a batch more will not do better."""

log = logging.getLogger(__name__)


@dataclass
class _Copies:
    """What one spark has of the wave, as long as it does not join again: of the `copied` it took
    `filled` out of its own bank, which is `asked` as long as that may have more."""

    joins: int = -1
    copied: int = 0
    filled: int = 0
    asked: bool = True
    committed: bool = False
    step: int = 0
    began_ns: int = 0
    failures: int = 0


class WaveStaging:
    """Stages one wave. `records` is how many experts the sparks hold before it."""

    def __init__(
        self,
        wave: Wave,
        bank: Bank,
        workers: Mapping[str, SliceWorker],
        links: Sequence[SparkLink],
        held_digest: str,
        pace: Pace,
        progress: SwapProgress,
        steps: StepLog,
    ) -> None:
        self._wave = wave
        self._bank = bank
        self._workers = workers
        self._links = links
        self._needed = wave.placed.counts.get(SPARK_TIER, 0) > 0
        self._commit = Commit(
            held_digest,
            wave.placed.counts.get(SPARK_TIER, 0) + len(wave.out_of(SPARK_TIER)),
        )
        self._pace = pace
        self._progress = progress
        self._steps = steps
        self._copies = {link.node: _Copies() for link in links}

    def run(self) -> None:
        """Return when every node can serve the wave's epoch. Raises Halted, K3Error."""
        for tier, worker in self._workers.items():
            self._stage_locally(tier, worker)
        while behind := self._behind():
            self._pace.check()
            lost = next((link for link in self._links if not link.ready), None)
            if lost is not None and self._needed:
                why = lost.snapshot().reason or f"{lost.node} is not ready"
                self._pace.hold(why, LOST_POLL_S)
                continue
            self._advance(behind)

    def complete(self) -> bool:
        """Whether every spark that is needed is still there as it was when it committed."""
        return not self._behind()

    def holds(self, link: SparkLink) -> bool:
        """Whether a spark can serve the wave's epoch as it is."""
        copies = self._copies.get(link.node)
        return copies is not None and copies.committed and copies.joins == link.joins

    def retire(self) -> None:
        """After the turn: sparks drop what the wave moved away and the epoch before it."""
        slots = [move.source_slot for move in self._wave.out_of(SPARK_TIER)]
        self._tell(self._wave.placed.epoch, slots, "retire")

    def drop(self, epoch: int) -> None:
        """Instead of the turn: sparks drop the copies and keep only `epoch`."""
        self._tell(epoch, (), "drop")

    def _stage_locally(self, tier: str, worker: SliceWorker) -> None:
        moves = self._wave.into(tier)
        if not moves:
            return
        with self._steps.step("stage", self._steps.station) as step:
            for move in moves:
                record = self._bank.record(move.layer, move.expert)
                self._pace.before(len(record))
                digest = blake3(record).digest()
                worker.load(move.target_slot, move.layer, move.expert, record, digest)
                step.copies += 1
                step.size_bytes += len(record)
                self._progress.copied_bytes += len(record)

    def _behind(self) -> list[SparkLink]:
        """Sparks that have not committed; one that joined again begins again. Where none is needed,
        those that are lost or fail are left behind: they join again for the epoch in force."""
        behind = []
        for link in self._links:
            copies, joins = self._copies[link.node], link.joins
            if copies.joins != joins:
                if copies.copied:
                    log.info("%s joined again; its copies begin again", link.node)
                self._copies[link.node] = copies = _Copies(joins, failures=copies.failures)
            left = not self._needed and (not link.ready or copies.failures >= MOST_FAILURES)
            if not (copies.committed or left):
                behind.append(link)
        return behind

    def _advance(self, behind: list[SparkLink]) -> None:
        """One batch to the sparks that are furthest behind, or their commit."""
        moves = self._wave.into(SPARK_TIER)
        first = min(self._copies[link.node].copied for link in behind)
        group = [link for link in behind if self._copies[link.node].copied == first]
        if first == len(moves):
            self._progress.phase = "committing"
            for link in group:
                self._try(link, self._commit_on)
            return
        self._progress.phase = "staging"
        count = max(1, self._pace.batch_bytes * len(self._links) // self._bank.header.record_bytes)
        chunk = moves[first : first + count]
        records = [(move, self._bank.record(move.layer, move.expert)) for move in chunk]
        for link in group:
            self._try(link, partial(self._send, records=records, of=len(moves)))

    def _try(self, link: SparkLink, action: Callable[[SparkLink], None]) -> None:
        """Do something with a spark, whose loss is no more than a pause."""
        copies = self._copies[link.node]
        try:
            action(link)
            copies.failures = 0
        except NodeLost as error:
            log.info("a swap waits: %s", error)
            copies.failures += 1
            if copies.failures >= MOST_FAILURES and self._needed:
                raise K3Error(
                    f"{link.node} failed {copies.failures} times in a row: {error.message}",
                    hint=error.hint,
                ) from None

    def _send(self, link: SparkLink, records: list[tuple[Move, memoryview]], of: int) -> None:
        copies, index = self._copies[link.node], self._links.index(link)
        count = len(self._links)
        if not copies.copied:
            copies.step, copies.began_ns = self._steps.begin("stage", link.node), perf_counter_ns()

        size = len(records[0][1]) // count
        pieces = []
        for move, record in records:
            piece = slice_of(record, index, count)
            digest = blake3(piece).digest()
            pieces.append(Record(move.target_slot, move.layer, move.expert, digest, piece))
        for batch in batches(
            self._fill(link, pieces, size) if copies.asked else pieces,
            size,
            max(size + RECORD_HEADER.size, self._pace.batch_bytes),
        ):
            self._exchange(link, Kind.LOAD, Kind.LOADED, batch.count, batch.parts, size)
            self._took(copies, batch.count, size)
        if copies.copied == of:
            took_ns = perf_counter_ns() - copies.began_ns
            self._steps.end(copies.step, took_ns, of, of * size)
            if copies.filled:
                self._steps.note(f"{link.node} took {copies.filled} of {of} slices from its bank")

    def _fill(self, link: SparkLink, pieces: list[Record], size: int) -> list[Record]:
        """Let a spark take slices out of its own bank; those that it has not."""
        copies, first = self._copies[link.node], 0
        lacking: list[Record] = []
        names = (Name(*piece[:4]) for piece in pieces)
        for batch in name_batches(names, size, max(1, self._pace.batch_bytes // size)):
            answer = self._exchange(
                link, Kind.FILL, Kind.FILLED, len(batch), [names_part(batch)], size
            )
            missed = read_lacking(answer.payload, len(batch), link.node)
            lacking += [pieces[first + index] for index in missed]
            first += len(batch)
            copies.filled += len(batch) - len(missed)
            self._took(copies, len(batch) - len(missed), size)
            if not copies.filled:
                copies.asked = False
                return pieces
        return lacking

    def _exchange(
        self, link: SparkLink, kind: Kind, answer: Kind, rows: int, parts: list[Buffer], size: int
    ) -> Frame:
        """One batch between two hops, no sooner than the pace allows."""
        self._pace.before(rows * size)
        frame = link.between_hops(
            kind, answer, joins=self._copies[link.node].joins, epoch=self._wave.placed.epoch,
            rows=rows, parts=parts,
        )  # fmt: skip
        self._pace.took(frame.compute_ns)
        return frame

    def _took(self, copies: _Copies, count: int, size: int) -> None:
        copies.copied += count
        self._progress.copied_bytes += count * size

    def _commit_on(self, link: SparkLink) -> None:
        copies = self._copies[link.node]
        with self._steps.step("commit", link.node):
            link.between_hops(
                Kind.COMMIT, Kind.COMMITTED, joins=copies.joins, epoch=self._wave.placed.epoch,
                parts=(encode(self._commit),),
            )  # fmt: skip
        copies.committed = True

    def _tell(self, epoch: int, slots: Sequence[int], step: str) -> None:
        """Retire on every spark that still has the copies; the others are filled anew."""
        for link in self._links:
            copies = self._copies[link.node]
            if copies.joins != link.joins or not link.ready:
                continue
            try:
                with self._steps.step(step, link.node):
                    link.between_hops(
                        Kind.RETIRE, Kind.RETIRED, joins=copies.joins, epoch=epoch,
                        rows=len(slots), parts=(slots_part(slots),),
                    )  # fmt: skip
            except NodeLost as error:
                log.info("%s will be filled anew: %s", link.node, error)
