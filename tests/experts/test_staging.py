"""Staged copies: beside what serves, kept or dropped, never in its place."""

from __future__ import annotations

import pytest
import torch
from blake3 import blake3

from k3d.errors import BankError
from k3d.experts.worker import SliceWorker
from tests.experts.tiny_experts import draw_dispatch, record_of, tiny_shape

SHAPE = tiny_shape()
COUNT = SHAPE.experts


def load(worker: SliceWorker, slot: int, layer: int, expert: int) -> None:
    record = memoryview(record_of(SHAPE, layer, expert))
    worker.load(slot, layer, expert, record, blake3(record).digest())


@pytest.fixture
def worker() -> SliceWorker:
    """All of layer 1 in the first slots, epoch 1 in force, as many slots free."""
    made = SliceWorker(SHAPE, 2 * COUNT)
    for expert in range(COUNT):
        load(made, expert, 1, expert)
    made.commit(1)
    return made


def serve(worker: SliceWorker, layer: int = 1) -> torch.Tensor:
    asked = draw_dispatch(SHAPE, 5, 3)
    served, partial = worker.serve(layer, asked.ids, asked.weights, asked.x)
    assert torch.equal(served, asked.ids)
    return partial


def test_staged_experts_are_dropped_or_kept(worker: SliceWorker) -> None:
    wanted = serve(worker)
    for round_ in range(2):
        for expert in range(COUNT):
            load(worker, COUNT + expert, 2, expert)
        worker.commit(2)
        assert (worker.epochs, worker.staged, worker.loaded) == ((1, 2), COUNT, 2 * COUNT)
        assert torch.equal(serve(worker), wanted)
        both = serve(worker, 2)
        if round_ == 0:
            worker.unstage()
            assert (worker.epochs, worker.staged, worker.loaded) == ((1,), 0, COUNT)
            with pytest.raises(BankError, match="does not hold"):
                serve(worker, 2)
    worker.settle(2, range(COUNT))
    assert (worker.epochs, worker.staged, worker.loaded) == ((2,), 0, COUNT)
    assert torch.equal(serve(worker, 2), both)
    with pytest.raises(BankError, match="does not hold"):
        serve(worker)


def test_a_slot_that_serves_is_never_staged_over(worker: SliceWorker) -> None:
    wanted = serve(worker)
    with pytest.raises(BankError, match="slot 3 serves another expert"):
        load(worker, 3, 2, 3)
    assert torch.equal(serve(worker), wanted)
    load(worker, COUNT, 2, 3)
    load(worker, COUNT, 2, 4)  # staging starts over
    assert worker.staged == 1


@pytest.mark.parametrize("keep", [True, False])
def test_two_copies_of_one_expert_leave_one(worker: SliceWorker, keep: bool) -> None:
    wanted = serve(worker)
    for _ in range(2):
        for expert in range(COUNT):
            load(worker, COUNT + expert, 1, expert)
    assert worker.loaded == 2 * COUNT
    assert torch.equal(serve(worker), wanted)
    if keep:
        worker.commit(2)
        worker.settle(2, range(COUNT))
        load(worker, 0, 2, 0)
        assert worker.loaded == COUNT + 1
    else:
        worker.unstage()
        assert worker.loaded == COUNT
    assert torch.equal(serve(worker), wanted)


def test_what_is_staged_is_decoded_ahead_within_the_cache(worker: SliceWorker) -> None:
    wanted = serve(worker)
    for expert in range(COUNT):
        load(worker, COUNT + expert, 2, expert)
    assert len(worker._ahead) == COUNT
    worker.commit(2)
    first = serve(worker, 2)
    worker.settle(2)
    assert torch.equal(serve(worker, 2), first)
    assert torch.equal(serve(worker), wanted)
    small = SliceWorker(SHAPE, 2 * COUNT, cache_bytes=1)
    small.commit(1)
    for expert in range(COUNT):
        load(small, expert, 2, expert)
    assert len(small._ahead) == 1
    assert torch.equal(serve(small, 2), first)
    small.unstage()
    assert not small._ahead
