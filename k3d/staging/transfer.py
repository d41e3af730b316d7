"""The records of one bank, from a channel to the disk: every record is hashed before it is
written, the bank is published whole."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

from k3d.errors import BankError
from k3d.experts.bank_file import Bank
from k3d.experts.bank_layout import Manifest
from k3d.experts.bank_writer import BankWriter
from k3d.experts.direct_write import BLOCK
from k3d.experts.record_repair import replace_record
from k3d.staging.disk_space import begun_bytes, free_bytes
from k3d.staging.pieces import Pieces, Step
from k3d.staging.verify import READ_BYTES, damages
from k3d.staging.wire import Channel, Checking, Stored, Wanted

PIECE_BYTES = 2 * 2**20
"""Received records are hashed and written in pieces of about this size, at least one."""
TELL_S = 1.0


class Transfer:
    """What one bank lacks here, asked for and taken. Raises K3Error."""

    def __init__(
        self, channel: Channel, path: Path, manifest: Manifest, look_only: bool = False
    ) -> None:
        self._channel = channel
        self._path = path
        self._manifest = manifest
        self._look_only = look_only
        self._layout = manifest.layout
        self._size = manifest.header.record_bytes
        self._told_s = monotonic()
        self._checked_bytes = 0

    def fill(self) -> None:
        """A bank that is not there, or not whole."""
        free = free_bytes(self._path.parent)
        have = begun_bytes(self._path)
        if free is not None and self._layout.size_bytes - have > free:
            raise BankError(
                f"{self._path.parent} has {free} bytes free and {self._path.name} needs "
                f"{self._layout.size_bytes - have}",
                hint="free space there",
            )
        with BankWriter(
            self._path, self._manifest.header, self._manifest, progress=self._checked
        ) as writer:
            nothing_there = len(writer.missing) == self._layout.count
            runs = [(0, self._layout.count)] if nothing_there else runs_of(sorted(writer.missing))
            self._channel.send(Wanted(runs, writer.kept, writer.discarded))
            self._take(runs, writer.check_run, writer.write_run)
            writer.publish()
        self._channel.send(Stored(self._layout.count, 0, writer.hash_s))

    def mend(self) -> None:
        """A bank that is there: what does not match its hash is sent again."""
        bank = Bank(self._path)
        try:
            lacking: list[int] = []
            for first, count in self._layout.runs(0, self._layout.count, READ_BYTES):
                lacking += [index for index, _ in damages(bank, first, count)]
                self._checked(count)
        finally:
            bank.close()
        self._channel.send(Wanted(runs_of(lacking), self._layout.count - len(lacking)))
        if self._look_only:
            return
        self._take([(index, 1) for index in lacking], self._replace)
        self._channel.send(Stored(self._layout.count, len(lacking)))

    def _replace(self, index: int, record: memoryview) -> None:
        replace_record(self._path, self._manifest, index, record)

    def _take(self, runs: list[tuple[int, int]], *steps: Step) -> None:
        """Receive the records of these runs, a piece of neighbours at a time, and do the steps with
        each while the next ones come in, where the disk takes them without a copy."""
        pieces = [
            piece
            for first, count in runs
            for piece in self._layout.runs(first, first + count, PIECE_BYTES)
        ]
        buffer_bytes = max((count for _, count in pieces), default=0) * self._size
        with Pieces(steps, buffer_bytes) as taken:
            for first, count in pieces:
                begin = self._layout.offset(first) % BLOCK
                buffer = taken.buffer()[begin : begin + count * self._size]
                self._channel.receive_into(buffer)
                taken.put(first, buffer)

    def _checked(self, records: int = 1) -> None:
        """Keep the sender patient while what is here is hashed."""
        self._checked_bytes += records * self._size
        if monotonic() - self._told_s >= TELL_S:
            self._told_s = monotonic()
            self._channel.send(Checking(self._checked_bytes, self._layout.size_bytes))


def runs_of(indexes: list[int]) -> list[tuple[int, int]]:
    """Ascending indexes as (first, number) of unbroken runs."""
    runs: list[tuple[int, int]] = []
    for index in indexes:
        if runs and sum(runs[-1]) == index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs
