"""Prefixes that were computed before: full pages of rows, and KDA snapshots at page borders.

A node is one page of tokens behind the node before it, so two prompts share nodes as far as they
are equal. A prefix can be resumed where a node has a snapshot; latent rows alone would not do.
A drafter's last row of a shared page may know another token behind it than this prompt's: that can
cost a draft, never a token.
The cache holds its pages (`RowPages`) and is bounded by them and by `snapshot_bytes`; what was
used longest ago goes first, leaves before what leads to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from k3d.model.kda_state import KdaSnapshot
from k3d.model.row_pages import PAGE_ROWS, RowPages


@dataclass(eq=False)
class CacheNode:
    """One page: its latent rows, and its drafter rows where there is a drafter."""

    parent: CacheNode | None
    tokens: tuple[int, ...]
    page: int
    snapshot: KdaSnapshot | None = None
    used: int = 0
    children: dict[tuple[int, ...], CacheNode] = field(default_factory=dict)
    removed: bool = False


@dataclass(frozen=True)
class Hit:
    """`pages` are held for the caller; the lane may resume after them."""

    node: CacheNode
    pages: list[int]
    snapshot: KdaSnapshot


@dataclass(frozen=True)
class CacheCounts:
    """Prompt tokens asked for and found since start; what is kept now."""

    asked_tokens: int
    found_tokens: int
    pages: int
    snapshots: int
    snapshot_bytes: int
    evicted_pages: int


class PrefixCache:
    """Roots by salt: requests of different salts share nothing."""

    def __init__(self, pages: RowPages, snapshot_bytes: int) -> None:
        self._pages = pages
        self._budget = snapshot_bytes
        self._roots: dict[str, dict[tuple[int, ...], CacheNode]] = {}
        self._nodes: dict[CacheNode, str] = {}
        self._clock = 0
        self._kept_bytes = 0
        self._snapshots = 0
        self._asked = self._found = self._evicted = 0

    def counts(self) -> CacheCounts:
        return CacheCounts(
            self._asked, self._found, len(self._nodes), self._snapshots, self._kept_bytes,
            self._evicted,
        )  # fmt: skip

    def find(self, salt: str, tokens: Sequence[int]) -> Hit | None:
        """The longest prefix of `tokens` to resume from that leaves one token to run."""
        self._asked += len(tokens)
        level = self._roots.get(salt, {})
        path: list[CacheNode] = []
        best = 0
        for start in range(0, len(tokens) - 1, PAGE_ROWS):
            page = tuple(tokens[start : start + PAGE_ROWS])
            node = level.get(page)
            if node is None or start + PAGE_ROWS >= len(tokens):
                break
            path.append(node)
            if node.snapshot is not None:
                best = len(path)
            level = node.children
        if not best:
            return None
        path = path[:best]
        self._clock += 1
        for node in path:
            node.used = self._clock
            self._pages.hold(node.page)
        snapshot = path[-1].snapshot
        assert snapshot is not None
        self._found += best * PAGE_ROWS
        return Hit(path[-1], [node.page for node in path], snapshot)

    def add(
        self,
        salt: str,
        parent: CacheNode | None,
        tokens: Sequence[int],
        page: int,
        snapshot: KdaSnapshot | None,
    ) -> CacheNode | None:
        """Keep one more full page behind `parent` (None: the first). Returns the node to go on
        from, which may be an equal one that was there; None when the parent is gone."""
        if parent is not None and parent.removed:
            return None
        assert len(tokens) == PAGE_ROWS
        level = self._roots.setdefault(salt, {}) if parent is None else parent.children
        key = tuple(tokens)
        node = level.get(key)
        if node is None:
            node = CacheNode(parent, key, page)
            self._pages.hold(page)
            level[key] = node
            self._nodes[node] = salt
        self._clock += 1
        node.used = self._clock
        if snapshot is not None and node.snapshot is None:
            self._keep_snapshot(node, snapshot)
        return node

    def evict_page(self) -> bool:
        """Let the least recently used leaf go that nobody else holds; False when there is none."""
        leaf = min(
            (n for n in self._nodes if not n.children and self._pages.holders(n.page) == 1),
            key=lambda node: node.used,
            default=None,
        )
        if leaf is None:
            return False
        self._remove(leaf)
        self._evicted += 1
        return True

    @property
    def evictable(self) -> int:
        """Pages that could be had by evicting."""
        return sum(self._pages.holders(node.page) == 1 for node in self._nodes)

    def _keep_snapshot(self, node: CacheNode, snapshot: KdaSnapshot) -> None:
        if snapshot.size_bytes > self._budget:
            return
        node.snapshot = snapshot
        self._kept_bytes += snapshot.size_bytes
        self._snapshots += 1
        while self._kept_bytes > self._budget:
            oldest = min(
                (n for n in self._nodes if n.snapshot is not None and n is not node),
                key=lambda each: each.used,
            )
            self._drop_snapshot(oldest)

    def _drop_snapshot(self, node: CacheNode) -> None:
        assert node.snapshot is not None
        self._kept_bytes -= node.snapshot.size_bytes
        self._snapshots -= 1
        node.snapshot = None

    def _remove(self, node: CacheNode) -> None:
        salt = self._nodes.pop(node)
        level = self._roots[salt] if node.parent is None else node.parent.children
        del level[node.tokens]
        if node.parent is None and not level:
            del self._roots[salt]
        if node.snapshot is not None:
            self._drop_snapshot(node)
        node.removed = True
        self._pages.drop(node.page)
