"""Memory of lanes: who gets pages, what is evicted for them, who has to give way."""

from __future__ import annotations

import torch

from k3d.engine.prefix_cache import PrefixCache
from k3d.engine.sequence import Sequence
from k3d.model.config import ModelConfig
from k3d.model.lane_state import LaneState, Snapshots
from k3d.model.row_pages import PAGE_ROWS, RowPages, pages_for


class LaneMemory:
    """The pool of pages and the prefix cache of one engine."""

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        *,
        row_bytes: int,
        snapshot_bytes: int,
        draft_width: int,
    ) -> None:
        """row_bytes: for pages of lanes and cache; snapshot_bytes 0 reuses no prefix."""
        self._config = config
        self._dtype = dtype
        each = RowPages.bytes_each(config, dtype, draft_width)
        self.pages = RowPages(config, dtype, max(1, row_bytes // each), draft_width)
        self.cache = PrefixCache(self.pages, snapshot_bytes) if snapshot_bytes else None

    @property
    def most_positions(self) -> int:
        """What one lane alone could hold."""
        return self.pages.total * PAGE_ROWS

    @property
    def snapshot_every(self) -> int:
        return PAGE_ROWS if self.cache is not None else 0

    def admits(self, sequence: Sequence, spare: int) -> bool:
        """Whether what is known of a sequence, and its next token, would fit now and leave `spare`
        pages."""
        evictable = self.cache.evictable if self.cache is not None else 0
        return self.pages.free + evictable >= pages_for(len(sequence.tokens) + 1) + spare

    def open(self, sequence: Sequence) -> None:
        """Give a sequence its lane, behind the longest prefix that is kept.

        Log probabilities of a prompt need every row of it, so such a request reuses none.
        """
        lane = LaneState(self._config, self._dtype, self.pages)
        sequence.lane, sequence.node = lane, None
        request = sequence.request
        if self.cache is None or (request.prompt_logprobs and not sequence.written):
            return
        hit = self.cache.find(request.cache_salt, sequence.tokens)
        if hit is None:
            return
        lane.resume(hit.pages, hit.snapshot)
        sequence.node = hit.node
        if not sequence.written:
            sequence.cached_tokens = lane.position

    def reserve(self, sequence: Sequence, positions: int) -> bool:
        """Pages for the first `positions` positions of a lane, evicting prefixes for them."""
        assert sequence.lane is not None
        while not sequence.lane.reserve(positions):
            if self.cache is None or not self.cache.evict_page():
                return False
        return True

    def close(self, sequence: Sequence) -> None:
        """The sequence is over or gives way: its pages are free but for what the cache keeps."""
        if sequence.lane is not None:
            sequence.lane.release()
        sequence.lane = sequence.node = None

    def keep(self, sequence: Sequence, before: int, snapshots: Snapshots) -> None:
        """After a commit that started at `before`: full pages go to the cache."""
        lane = sequence.lane
        if self.cache is None or lane is None:
            return
        for page in range(before // PAGE_ROWS, lane.position // PAGE_ROWS):
            if page and sequence.node is None:
                return  # the chain was cut: a page before this one is not in the cache
            end = (page + 1) * PAGE_ROWS
            sequence.node = self.cache.add(
                sequence.request.cache_salt,
                sequence.node,
                sequence.tokens[end - PAGE_ROWS : end],
                lane.pages[page],
                snapshots.get(end),
            )
