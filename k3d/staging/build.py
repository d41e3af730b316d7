"""Building banks: every expert is read once, whatever is cut from it.

Records are read a few ahead, by the offsets in the shards' headers, so memory is bounded by
READ_AHEAD records whatever the checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from k3d.errors import BankError
from k3d.experts.bank import slice_of
from k3d.experts.bank_file import Bank
from k3d.experts.bank_writer import BankWriter
from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint
from k3d.staging.disk_space import begun_bytes, free_bytes
from k3d.staging.progress import Emit, Progress, say_nothing
from k3d.staging.wanted import WantedBank

READERS = 2
READ_AHEAD = 4
"""Records in memory beside the one that is being written."""


class Records(Protocol):
    """Where whole records come from."""

    def record(self, layer: int, expert: int) -> bytes | memoryview:
        """Raises K3Error naming what is damaged."""
        ...


@dataclass(frozen=True)
class BuiltBank:
    """What building did for one bank. `kept` records were whole in an interrupted build; `hash_s`
    is the time that hashing took, checking what was kept included."""

    node: str
    path: Path
    size_bytes: int
    records: int
    kept: int
    written: int
    written_bytes: int
    hash_s: float
    discarded: str | None = None


def build_banks(
    wanted: list[WantedBank], records: Records, emit: Emit = say_nothing
) -> list[BuiltBank]:
    """Write and publish the banks; what an interrupted build left whole is kept.

    Raises BankError, CheckpointError or Locked: then no bank is half published, and what was
    written so far is gone on with by the next build.
    """
    with ExitStack() as stack:
        writers = []
        for bank in wanted:
            size = bank.header.record_bytes
            checking = Progress(emit, "resume", bank.layout.count * size, bank.path.name)
            writer = BankWriter(
                bank.path, bank.header, progress=lambda seen=checking, size=size: seen.add(size)
            )
            writers.append(stack.enter_context(writer))
        plan = _plan(writers)
        total = sum(len(writer.missing) * writer.layout.header.record_bytes for writer in writers)
        what = writers[0].path.name if len(writers) == 1 else f"{len(writers)} banks"
        progress = Progress(emit, "build", total, what)
        written = [len(writer.missing) for writer in writers]
        for (_, _, places), record in read_ahead(plan, lambda step: records.record(*step[:2])):
            view = memoryview(record)
            for writer, index in places:
                header = writer.layout.header
                piece = slice_of(view, header.slice_index, header.slice_count)
                writer.put(index, piece)
                progress.add(len(piece))
        for writer in writers:
            writer.publish()
        return [
            BuiltBank(
                bank.node, bank.path, writer.layout.size_bytes, writer.layout.count,
                writer.kept, count, count * writer.layout.header.record_bytes, writer.hash_s,
                writer.discarded,
            )
            for bank, writer, count in zip(wanted, writers, written, strict=True)
        ]  # fmt: skip


Step = tuple[int, int, list[tuple[BankWriter, int]]]


def _plan(writers: list[BankWriter]) -> list[Step]:
    """(layer, expert, who lacks it), in the order of layers and experts as integers."""
    lacking: dict[tuple[int, int], list[tuple[BankWriter, int]]] = {}
    for writer in writers:
        for index in writer.missing:
            lacking.setdefault(writer.layout.order[index], []).append((writer, index))
    return [(*expert, lacking[expert]) for expert in sorted(lacking)]


def read_ahead(
    steps: Iterable[Step], read: Callable[[Step], bytes | memoryview]
) -> Iterator[tuple[Step, bytes | memoryview]]:
    """Each step with its record, in order, READ_AHEAD of them being read meanwhile."""
    waiting: deque[tuple[Step, Future[bytes | memoryview]]] = deque()
    with ThreadPoolExecutor(READERS, thread_name_prefix="records") as readers:
        try:
            for step in steps:
                if len(waiting) == READ_AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
                    del future
                waiting.append((step, readers.submit(read, step)))
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
                del future
        finally:
            for _, future in waiting:
                future.cancel()


def require_space(wanted: list[WantedBank]) -> int:
    """Bytes that building will take. Raises BankError when they are not free."""
    if not wanted:
        return 0
    folder = wanted[0].path.parent
    needed = sum(bank.layout.size_bytes - begun_bytes(bank.path) for bank in wanted)
    free = free_bytes(folder)
    if free is not None and needed > free:
        raise BankError(
            f"{folder} has {free} bytes free and the banks need {needed}",
            hint="free space there, build less (--no-whole, --no-slices), or use another home",
        )
    return needed


def build_pod(
    checkpoint: Checkpoint, wanted: list[WantedBank], *, as_nvfp4: bool, emit: Emit = say_nothing
) -> list[BuiltBank]:
    """Build those of a pod's banks that are not ready, out of the Station's bank if that is, else
    out of the shards. Raises as build_banks, before anything is written when space is short."""
    pending = [bank for bank in wanted if bank.state() != "ready"]
    if not pending:
        return []
    require_space(pending)
    ready = [bank for bank in wanted if not bank.is_slice and bank not in pending]
    if ready:
        whole = Bank(ready[0].path, model_digest=checkpoint.digest)
        try:
            slices = [bank.with_facts(whole.shape, {}) for bank in pending]
            return build_banks(slices, whole, emit)
        finally:
            whole.close()
    source = ExpertSource(checkpoint, as_nvfp4=as_nvfp4)
    if any(not bank.is_slice for bank in pending):
        checkpoint.hash_others()
    facts = [bank.with_facts(source.shape, checkpoint.digests) for bank in pending]
    return build_banks(facts, source, emit)
