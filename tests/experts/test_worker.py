"""A worker's partial: the same integers however experts are cut, cached or grouped."""

from __future__ import annotations

import random

import pytest
import torch
from blake3 import blake3

from k3d.errors import BankError
from k3d.experts.shape import ExpertFormat
from k3d.experts.worker import ABSENT, SliceWorker
from tests.experts.tiny_experts import (
    Dispatch,
    draw_dispatch,
    everything,
    record_of,
    tiny_shape,
    worker_of,
)

FORMATS = ("nvfp4", "mxfp4")
DTYPES = (torch.float64, torch.bfloat16)


def serve(worker: SliceWorker, layer: int, asked: Dispatch) -> torch.Tensor:
    served, partial = worker.serve(layer, asked.ids, asked.weights, asked.x)
    assert torch.equal(served, asked.ids)
    assert partial.dtype == torch.int64
    return partial


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])
def test_slices_sum_to_the_whole(form: ExpertFormat, dtype: torch.dtype) -> None:
    shape = tiny_shape(form)
    asked = draw_dispatch(shape, 4, 9, dtype)
    whole = serve(worker_of(shape), 2, asked)
    assert (whole != 0).double().mean() > 0.99
    for count in (2, 4, 8):
        if shape.atoms % count:
            continue
        partials = [serve(worker_of(shape, i, count), 2, asked) for i in range(count)]
        assert all(not torch.equal(partial, whole) for partial in partials)
        random.Random(count).shuffle(partials)
        assert torch.equal(torch.stack(partials).sum(0), whole)


@pytest.mark.parametrize("seed", range(5))
def test_company_and_order_change_no_bit(seed: int) -> None:
    """Rows alone, in subsets, in other orders, and a row's experts spread over several asks."""
    shape = tiny_shape()
    worker = worker_of(shape)
    asked = draw_dispatch(shape, seed, 24)
    whole = serve(worker, 1, asked)
    generator = torch.Generator().manual_seed(seed)
    for count in (1, 2, 7, 24):
        rows = torch.randperm(24, generator=generator)[:count]
        part = Dispatch(asked.ids[rows], asked.weights[rows], asked.x[rows])
        assert torch.equal(serve(worker, 1, part), whole[rows]), f"seed {seed}"
    here = torch.rand(asked.ids.shape, generator=generator) < 0.5
    total = torch.zeros_like(whole)
    for mask in (here, ~here):
        ids = torch.where(mask, asked.ids, ABSENT)
        served, partial = worker.serve(1, ids, asked.weights, asked.x)
        assert torch.equal(served, ids)
        total += partial
    assert torch.equal(total, whole), f"seed {seed}"


def test_the_cache_changes_nothing() -> None:
    shape = tiny_shape()
    roomy, tight, none = (
        worker_of(shape, cache_bytes=size) for size in (2**30, 3 * 8 * 96 * 128, 0)
    )
    for seed in range(4):
        for layer in shape.layers:
            asked = draw_dispatch(shape, seed, 5)
            wanted = serve(roomy, layer, asked)
            assert torch.equal(serve(tight, layer, asked), wanted)
            assert torch.equal(serve(none, layer, asked), wanted)
    assert len(none._decoded) == 1
    assert tight._cached_bytes <= 3 * 8 * 96 * 128
    assert tight._cached_bytes == sum(d.size_bytes for d in tight._decoded.values())


def test_an_expert_asked_twice_by_a_row_counts_twice() -> None:
    shape = tiny_shape()
    worker = worker_of(shape)
    asked = draw_dispatch(shape, 1, 1)
    ids = torch.tensor([[3, 3, ABSENT, ABSENT]], dtype=torch.int32)
    _, twice = worker.serve(1, ids, asked.weights, asked.x)
    total = torch.zeros_like(twice)
    for place in range(2):
        one = torch.full_like(ids, ABSENT)
        one[0, place] = 3
        total += worker.serve(1, one, asked.weights, asked.x)[1]
    assert torch.equal(twice, total)


def test_nothing_asked_is_nothing_served() -> None:
    shape = tiny_shape()
    asked = draw_dispatch(shape, 1, 3)
    served, partial = worker_of(shape).serve(
        1, torch.full_like(asked.ids, ABSENT), asked.weights, asked.x
    )
    assert (served == ABSENT).all()
    assert not partial.any()


def test_an_absent_expert_is_an_error() -> None:
    shape = tiny_shape()
    worker = SliceWorker(shape, 3, name="spark-2")
    asked = draw_dispatch(shape, 1, 3)
    with pytest.raises(BankError, match=r"spark-2 is asked for layer 2 expert \d+, which"):
        worker.serve(2, asked.ids, asked.weights, asked.x)
    for stray in (shape.experts, -2, 2**31 - 1):
        ids = torch.tensor([[stray, ABSENT, ABSENT, ABSENT]], dtype=torch.int32)
        with pytest.raises(BankError, match=str(stray)):
            worker_of(shape).serve(2, ids, asked.weights[:1], asked.x[:1])


def test_load_refuses_what_it_cannot_trust() -> None:
    shape = tiny_shape()
    worker = SliceWorker(shape, 3, name="spark-2")
    record = record_of(shape, 1, 0)
    good = blake3(record).digest()
    flipped = bytearray(record)
    flipped[100] ^= 4
    for what, arguments in {
        "does not match its hash": (0, 1, 0, memoryview(flipped), good),
        "bytes, not": (0, 1, 0, memoryview(record)[:-1], good),
        "slot 3 of 3": (3, 1, 0, memoryview(record), good),
        "slot -1 of 3": (-1, 1, 0, memoryview(record), good),
        "no such expert": (0, 4, 0, memoryview(record), good),
    }.items():
        with pytest.raises(BankError, match=what) as caught:
            worker.load(*arguments)
        assert "spark-2" in caught.value.message
    for expert in (shape.experts, -1):
        with pytest.raises(BankError, match="no such expert"):
            worker.load(0, 1, expert, memoryview(record), good)
    assert worker.loaded == 0
    assert worker.packed_bytes == 0


def test_a_slot_holds_its_newest_expert() -> None:
    """A swap: the old expert is gone with its decoded copy, the new one answers."""
    shape = tiny_shape()
    worker = worker_of(shape)
    asked = draw_dispatch(shape, 2, 4)
    wanted = serve(worker, 1, asked)
    count = worker.loaded
    record = record_of(shape, 2, 5)
    worker.load(
        0, 2, 5, memoryview(record), blake3(record).digest()
    )  # slot 0 held layer 1 expert 0
    assert worker.loaded == count - 1
    with pytest.raises(BankError, match="layer 1 expert 0"):
        worker.serve(
            1, torch.tensor([[0, -1, -1, -1]], dtype=torch.int32), asked.weights[:1], asked.x[:1]
        )
    back = record_of(shape, 1, 0)
    worker.load(0, 1, 0, memoryview(back), blake3(back).digest())
    assert torch.equal(serve(worker, 1, asked), wanted)


def test_reset_forgets_everything() -> None:
    shape = tiny_shape()
    worker = worker_of(shape)
    worker.commit(7)
    assert (worker.epochs, worker.loaded) == ((7,), len(list(everything(shape))))
    worker.reset()
    assert (worker.epochs, worker.loaded, worker.packed_bytes) == ((), 0, 0)
    asked = draw_dispatch(shape, 1, 1)
    with pytest.raises(BankError, match="does not hold"):
        worker.serve(1, asked.ids, asked.weights, asked.x)
