"""What is kept of prefixes, found again, bounded and let go."""

from __future__ import annotations

import random

import pytest
import torch

from k3d.engine.prefix_cache import CacheNode, PrefixCache
from k3d.model.kda_state import KdaSnapshot
from k3d.model.row_pages import PAGE_ROWS, RowPages
from tests.engine.counting_model import tiny_config

BYTES = 1024


def snapshot() -> KdaSnapshot:
    return KdaSnapshot(torch.zeros(BYTES, dtype=torch.uint8), torch.zeros(0))


class Lane:
    """Someone who computes pages and gives them to the cache."""

    def __init__(self, cache: PrefixCache, pages: RowPages) -> None:
        self.cache, self.pages = cache, pages
        self.held: list[int] = []
        self.node: CacheNode | None = None

    def compute(self, tokens: list[int], *, salt: str = "", borders: bool = True) -> None:
        for start in range(0, len(tokens) // PAGE_ROWS * PAGE_ROWS, PAGE_ROWS):
            page = self.pages.take()
            assert page is not None
            self.held.append(page)
            part = tokens[start : start + PAGE_ROWS]
            kept = snapshot() if borders else None
            self.node = self.cache.add(salt, self.node, part, page, kept)

    def leave(self) -> None:
        for page in self.held:
            self.pages.drop(page)
        self.held, self.node = [], None


@pytest.fixture
def pages() -> RowPages:
    return RowPages(tiny_config(), torch.bfloat16, 8)


@pytest.fixture
def cache(pages: RowPages) -> PrefixCache:
    return PrefixCache(pages, 100 * BYTES)


def text(pages: int, *, seed: int = 0, more: int = 0) -> list[int]:
    noise = random.Random(seed)
    return [noise.randrange(300) for _ in range(pages * PAGE_ROWS + more)]


def test_a_prefix_is_found_as_far_as_it_is_equal(cache: PrefixCache, pages: RowPages) -> None:
    lane = Lane(cache, pages)
    whole = text(3)
    lane.compute(whole)
    lane.leave()
    assert pages.free == 5
    for asked, wanted in (
        ([*whole, 1], 3),
        (whole, 2),  # one token must be left to run
        ([*whole[:-1], 299, 5], 2),
        (whole[: 2 * PAGE_ROWS + 1], 2),
        (whole[:PAGE_ROWS], 0),
        ([5, *whole], 0),
    ):
        hit = cache.find("", asked)
        assert (len(hit.pages) if hit else 0) == wanted
        for page in hit.pages if hit else ():
            pages.drop(page)
    assert cache.find("salt", [*whole, 1]) is None
    counts = cache.counts()
    assert (counts.pages, counts.snapshots, counts.snapshot_bytes) == (3, 3, 3 * BYTES)
    assert counts.found_tokens == (3 + 2 + 2 + 2) * PAGE_ROWS


def test_rows_without_a_state_are_no_prefix(cache: PrefixCache, pages: RowPages) -> None:
    lane = Lane(cache, pages)
    lane.compute(text(3), borders=False)
    assert cache.find("", text(3, more=1)) is None


def test_two_who_compute_the_same_share_the_first_one_s(
    cache: PrefixCache, pages: RowPages
) -> None:
    one, other = Lane(cache, pages), Lane(cache, pages)
    one.compute(text(2))
    other.compute(text(2))
    assert one.node is other.node
    assert cache.counts().pages == 2
    other.leave()
    assert pages.free == 6


def test_the_oldest_leaf_goes_first_and_never_one_in_use(
    cache: PrefixCache, pages: RowPages
) -> None:
    old, young = Lane(cache, pages), Lane(cache, pages)
    old.compute(text(2, seed=1))
    young.compute(text(2, seed=2))
    old.leave()
    hit = cache.find("", text(2, seed=2, more=1))
    assert hit is not None
    young.leave()
    assert cache.evictable == 2
    assert cache.evict_page()
    assert cache.evict_page()
    assert not cache.evict_page()  # the hit holds the rest
    assert cache.find("", text(2, seed=1, more=1)) is None
    for page in hit.pages:
        pages.drop(page)
    assert cache.evict_page()
    assert cache.evict_page()
    assert pages.free == pages.total
    assert cache.counts().pages == cache.counts().snapshot_bytes == 0
    assert cache.counts().evicted_pages == 4


def test_a_chain_whose_parent_went_is_not_joined(cache: PrefixCache, pages: RowPages) -> None:
    lane = Lane(cache, pages)
    lane.compute(text(1))
    node = lane.node
    lane.leave()
    assert cache.evict_page()
    page = pages.take()
    assert page is not None
    assert cache.add("", node, text(1, seed=9), page, snapshot()) is None


def test_states_are_bounded_by_bytes(pages: RowPages) -> None:
    cache = PrefixCache(pages, 3 * BYTES)
    lane = Lane(cache, pages)
    lane.compute(text(6))
    counts = cache.counts()
    assert (counts.pages, counts.snapshots, counts.snapshot_bytes) == (6, 3, 3 * BYTES)
    hit = cache.find("", text(6, more=1))
    assert hit is not None
    assert len(hit.pages) == 6
    small = PrefixCache(pages, BYTES - 1)
    page = pages.take()
    assert page is not None
    small.add("", None, text(1), page, snapshot())
    assert small.counts().snapshots == 0
