"""What one sequence keeps between passes.

A pass writes rows beyond `position` only: rows of the KDA block in progress, latent rows, and a
record of what went into KDA. All of that is garbage until `commit` counts some of the rows in, so
a pass that fails half-way or a draft that is refused leaves nothing behind.

A prompt's chunk moves KDA anchors many times; it runs on a copy of the KDA state (`Workspace`, one
a model), which changes places with the lane's own when the chunk is committed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from k3_kernels.kda import BLOCK_ROWS, KdaRows
from torch import Tensor

from k3d.model.config import ModelConfig
from k3d.model.kda_state import HISTORY, KdaInputs, KdaRecord, KdaSnapshot, KdaState
from k3d.model.row_pages import PAGE_ROWS, RowPages, pages_for

Replay = Callable[[int, KdaRows, Tensor, KdaRecord], None]
"""(KDA layer counted from 0, its rows, its conv samples, what to run) -> both are advanced."""


Snapshots = dict[int, KdaSnapshot]
"""By position."""


class Workspace:
    """The KDA state that a chunk in flight is computed on, and one snapshot on its way."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self.kda = KdaState(config, dtype)
        self.anchors: list[Tensor] = []
        self.conv: list[Tensor] = []


class LaneState:
    """State of one lane; its rows are in `pages`, which grow with `reserve`."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, pages: RowPages) -> None:
        self.position = 0
        self.kda = KdaState(config, dtype)
        self.pages: list[int] = []
        self._pool = pages
        self._table = torch.zeros(0, dtype=torch.int64)
        self._rows = torch.zeros(0, dtype=torch.int64)  # where the pass's rows go in the pool
        self._count = 0
        self._workspace: Workspace | None = None
        self._records: list[KdaRecord] = []
        self._snapshot_every = 0
        self._snapshot_at: int | None = None

    @classmethod
    def alone(cls, config: ModelConfig, dtype: torch.dtype, capacity: int) -> LaneState:
        """A lane with pages of its own for `capacity` positions."""
        lane = cls(config, dtype, RowPages(config, dtype, pages_for(capacity)))
        assert lane.reserve(capacity)
        return lane

    @property
    def capacity(self) -> int:
        return len(self.pages) * PAGE_ROWS

    def reserve(self, positions: int) -> bool:
        """Take pages for the first `positions` positions; False, with what could be had, when the
        pool is out of them."""
        while self.capacity < positions:
            page = self._pool.take()
            if page is None:
                return False
            self._set_pages([*self.pages, page])
        return True

    def resume(self, pages: list[int], snapshot: KdaSnapshot) -> None:
        """Start after the rows of `pages`, full ones that the caller holds for this lane."""
        assert not self.pages
        self._set_pages(pages)
        self.kda.restore(snapshot)
        self.position = len(pages) * PAGE_ROWS

    def release(self) -> None:
        """Give the pages back; the lane is over."""
        for page in self.pages:
            self._pool.drop(page)
        self._set_pages([])

    def _set_pages(self, pages: list[int]) -> None:
        self.pages = pages
        self._table = torch.tensor(pages, dtype=torch.int64)

    def begin(
        self,
        rows: int,
        workspace: Workspace | None,
        snapshot_every: int = 0,
        snapshot_until: int | None = None,
    ) -> None:
        """A pass over the next `rows` rows starts; without a workspace they may be taken back.

        A snapshot is taken at multiples of `snapshot_every` (itself one of BLOCK_ROWS; 0 takes
        none): at the last one of a chunk that is not past `snapshot_until`, at every one that rows
        are committed over.
        """
        assert self.position + rows <= self.capacity
        self._count = rows
        self._workspace = workspace
        self._records = []
        self._rows = self._places(self.position, self.position + rows)
        self._snapshot_every = snapshot_every
        end = self.position + rows
        end = end if snapshot_until is None else min(end, snapshot_until)
        last = end // snapshot_every * snapshot_every if snapshot_every else 0
        self._snapshot_at = last if workspace is not None and last > self.position else None
        if workspace is not None:
            workspace.anchors, workspace.conv = [], []

    def run_kda(self, index: int, inputs: KdaInputs, record: KdaRecord) -> Tensor:
        """The pass's rows through KDA layer `index` (counted from 0, called in order):
        o f64 [rows, heads, dim]."""
        own, work = self.kda.rows[index], self._workspace
        if work is None:
            self._records.append(record.compact())
            return inputs.run(own, self.position, ahead=True)
        rows = work.kda.rows[index]
        rows.copy_(own)
        samples = torch.cat((self.kda.conv[index], record.qkv))
        work.kda.conv[index] = samples[-HISTORY:]
        if self._snapshot_at is None:
            return inputs.run(rows, self.position)
        before = self._snapshot_at - self.position
        out = inputs.cut(slice(None, before)).run(rows, self.position)
        work.anchors.append(rows.anchor.clone())
        work.conv.append(samples[before : before + HISTORY])
        if before == self._count:
            return out
        rest = inputs.cut(slice(before, None)).run(rows, self._snapshot_at)
        return torch.cat((out, rest))

    @property
    def record_bytes(self) -> int:
        """Bytes kept for the rows of this pass, should some be taken back."""
        return sum(record.size_bytes for record in self._records)

    def write_latents(self, layer: int, rows: Tensor) -> None:
        """Latent rows [rows of the pass, rank + shared] of an MLA layer."""
        pool = self._pool.latents[layer]
        pool.view(-1, pool.shape[-1])[self._rows] = rows

    def latents(self, layer: int) -> Tensor:
        """Latent rows [position + rows of the pass, rank + shared]."""
        return self._gather(self._pool.latents[layer], self.position + self._count)

    def write_drafts(self, start: int, rows: Tensor) -> None:
        """A drafter's context rows f32 [rows, width] of positions start, start + 1, ..."""
        pool = self._pool.drafts
        pool.view(-1, pool.shape[-1])[self._places(start, start + rows.shape[0])] = rows

    def drafts(self) -> Tensor:
        """A drafter's context rows f32 [position, width]."""
        return self._gather(self._pool.drafts, self.position)

    def _places(self, start: int, stop: int) -> Tensor:
        positions = torch.arange(start, stop)
        pages = self._table[positions // PAGE_ROWS]
        return pages * PAGE_ROWS + positions % PAGE_ROWS

    def _gather(self, pool: Tensor, rows: int) -> Tensor:
        return pool[self._table[: pages_for(rows)]].view(-1, pool.shape[-1])[:rows]

    def commit(self, rows: int, replay: Replay) -> Snapshots:
        """Count the first `rows` rows of the pass in; returns the snapshots taken on the way."""
        assert 0 < rows <= self._count
        work = self._workspace
        if work is None:
            snapshots = self._commit_ahead(rows, replay)
        else:
            assert rows == self._count
            self.kda, work.kda = work.kda, self.kda
            self.position += rows
            snapshots = {}
            if self._snapshot_at is not None:
                kept = KdaSnapshot(torch.stack(work.anchors), torch.stack(work.conv))
                snapshots[self._snapshot_at] = kept
        self._count = 0
        self._records = []
        return snapshots

    def _commit_ahead(self, rows: int, replay: Replay) -> Snapshots:
        snapshots: Snapshots = {}
        done = 0
        while done < rows:
            room = BLOCK_ROWS - self.position % BLOCK_ROWS
            step = min(room, rows - done)
            if done == 0:  # these rows are in place
                for index, record in enumerate(self._records):
                    samples = torch.cat((self.kda.conv[index], record.qkv[:step]))
                    self.kda.conv[index] = samples[-HISTORY:]
                if step == room:
                    self.kda.fold()
            else:
                for index, record in enumerate(self._records):
                    part = record.cut(slice(done, done + step))
                    replay(index, self.kda.rows[index], self.kda.conv[index], part)
            done += step
            self.position += step
            if self._snapshot_every and self.position % self._snapshot_every == 0:
                snapshots[self.position] = self.kda.snapshot()
        return snapshots
