"""Tiers under a map: each expert exactly once, and the same bits under every map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from k3d.errors import ConfigError, FabricError, K3Error, NodeLost
from k3d.experts.dispatch import DTYPES, DispatchLayout, as_bytes
from k3d.experts.frame_worker import FrameWorker
from k3d.experts.hop_log import HopLog
from k3d.experts.shape import ExpertShape
from k3d.experts.tiers import Answer, ExpertTiers, LocalTier, SparkTier, Tier
from k3d.experts.worker import ABSENT
from tests.experts.tiny_experts import (
    Dispatch,
    draw_dispatch,
    everything,
    record_of,
    tiny_shape,
    worker_of,
)

SHAPE = tiny_shape()


@dataclass(frozen=True)
class Reply:
    payload: memoryview
    compute_ns: int


class DirectHop:
    """A spark in this process: payload bytes in, payload bytes out, through its frame worker."""

    def __init__(self, worker: FrameWorker, epoch: int) -> None:
        self.worker, self.epoch = worker, epoch
        self.reply: Reply | None = None

    def begin(self, layer: int, rows: int, parts: Sequence[memoryview]) -> None:
        payload = memoryview(bytearray(b"".join(parts)))
        answer = self.worker.serve(self.epoch, layer, payload, rows)
        self.reply = Reply(memoryview(bytearray(b"".join(answer))), 1000)

    def finish(self) -> Reply:
        assert self.reply is not None
        reply, self.reply = self.reply, None
        return reply

    def settle(self) -> None:
        self.reply = None


def frame_worker(index: int, count: int, dtype: str = "fp32") -> FrameWorker:
    from blake3 import blake3

    worker = FrameWorker(SHAPE, 36, index, count, dtype, f"spark-{index + 1}")
    size = SHAPE.slice_bytes(count)
    for slot, layer, expert in everything(SHAPE):
        record = memoryview(record_of(SHAPE, layer, expert))
        part = record[index * size : (index + 1) * size]
        worker.load(slot, layer, expert, part, blake3(part).digest())
    worker.commit(3)
    return worker


def sparks(count: int, dtype: str = "fp32") -> SparkTier:
    hops = [DirectHop(frame_worker(index, count, dtype), 3) for index in range(count)]
    return SparkTier(hops, SHAPE, DTYPES[dtype], 64)


def local(name: str = "hbm") -> LocalTier:
    return LocalTier(name, worker_of(SHAPE))


def table(seed: int | None, tiers: int) -> Tensor:
    places = torch.zeros(4, SHAPE.experts, dtype=torch.int8)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        places = torch.randint(0, tiers, places.shape, generator=generator).to(torch.int8)
    places[0] = -1  # layer 0 is dense
    return places


def tiers_of(tiers: Sequence[Tier], places: Tensor, shape: ExpertShape = SHAPE) -> ExpertTiers:
    return ExpertTiers(shape, tiers, places, HopLog(tuple(tier.name for tier in tiers)))


def run(tiers: ExpertTiers, layer: int, asked: Dispatch) -> Tensor:
    tiers.start(layer, asked.ids, asked.weights, asked.x)
    return tiers.finish()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_every_map_and_slicing_gives_the_same_bits(dtype: str) -> None:
    torch_dtype = DTYPES[dtype]
    one = tiers_of([local()], table(None, 1))
    many = [local("hbm"), sparks(2, dtype), local("grace"), sparks(8, dtype)]
    maps = [tiers_of(many, table(seed, 4)) for seed in range(4)]
    maps.append(tiers_of([sparks(4, dtype)], table(None, 1)))
    for layer in SHAPE.layers:
        for rows in (1, 2, 17):
            asked = draw_dispatch(SHAPE, layer * rows, rows, torch_dtype)
            wanted = run(one, layer, asked)
            assert wanted.dtype == torch.float64
            for number, tiers in enumerate(maps):
                assert torch.equal(run(tiers, layer, asked), wanted), f"map {number}"


def test_the_sum_is_on_the_layers_grid() -> None:
    asked = draw_dispatch(SHAPE, 1, 3)
    found = run(tiers_of([local()], table(None, 1)), 2, asked)
    _, partial = worker_of(SHAPE).serve(2, asked.ids, asked.weights, asked.x)
    assert torch.equal(found, partial.double() * 2.0 ** SHAPE.grid_exponent(2))


class Liar(LocalTier):
    """Says that it served something else than it was asked."""

    def __init__(self, change: str) -> None:
        super().__init__("grace", worker_of(SHAPE))
        self.change = change

    def finish(self) -> Sequence[Answer]:
        (answer,) = super().finish()
        served = answer.served.clone()
        rows, places = torch.nonzero(served != ABSENT, as_tuple=True)
        if self.change == "missing":
            served[rows[0], places[0]] = ABSENT
        elif self.change == "another":
            served[rows[0], places[0]] = (served[rows[0], places[0]] + 1) % SHAPE.experts
        elif self.change == "uninvited":
            rows, places = torch.nonzero(served == ABSENT, as_tuple=True)
            served[rows[0], places[0]] = 0
        elif self.change == "fewer rows":
            served = served[:-1]
        return (replace(answer, served=served),)


@pytest.mark.parametrize("change", ["missing", "another", "uninvited", "fewer rows"])
def test_a_tier_that_did_not_serve_as_asked_is_an_error(change: str) -> None:
    tiers = tiers_of([local(), Liar(change)], table(1, 2))
    with pytest.raises(K3Error, match="tier grace did not serve layer 2 as it was asked"):
        run(tiers, 2, draw_dispatch(SHAPE, 1, 5))


def test_one_spark_of_several_that_lies_is_found() -> None:
    honest = [DirectHop(frame_worker(index, 4), 3) for index in range(4)]

    class LyingHop(DirectHop):
        def finish(self) -> Reply:
            reply = super().finish()
            payload = bytearray(reply.payload)
            payload[:4] = b"\xff\xff\xff\xff"
            return Reply(memoryview(payload), reply.compute_ns)

    hops = [*honest[:3], LyingHop(frame_worker(3, 4), 3)]
    tiers = tiers_of([SparkTier(hops, SHAPE, DTYPES["fp32"], 8)], table(None, 1))
    with pytest.raises(K3Error, match="tier spark did not serve layer 1"):
        run(tiers, 1, draw_dispatch(SHAPE, 1, 2))


@pytest.mark.parametrize("hole", [-1, 2, 100])
def test_a_map_with_a_hole_is_refused(hole: int) -> None:
    places = table(1, 2)
    places[3, 7] = hole
    with pytest.raises(ConfigError, match="leaves experts without a tier"):
        tiers_of([local(), local("grace")], places)


def test_a_tier_with_nothing_to_do_is_not_asked() -> None:
    class Idle(LocalTier):
        def begin(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
            raise AssertionError("asked for nothing")

    tiers = tiers_of([local(), Idle("grace", worker_of(SHAPE))], table(None, 1))
    run(tiers, 1, draw_dispatch(SHAPE, 1, 3))


def test_remote_tiers_start_before_local_ones() -> None:
    order: list[str] = []

    class Noting(LocalTier):
        def begin(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
            order.append(self.name)
            super().begin(layer, ids, weights, x)

    one, two, far = (Noting(name, worker_of(SHAPE)) for name in ("hbm", "grace", "spark"))
    far.remote = True
    run(tiers_of([one, two, far], table(2, 3)), 1, draw_dispatch(SHAPE, 1, 20))
    assert order == ["spark", "hbm", "grace"]


def test_an_abandoned_layer_leaves_nothing() -> None:
    class Lossy(DirectHop):
        lose = False

        def finish(self) -> Reply:
            if self.lose:
                raise NodeLost("spark-2", "spark-2 stopped answering")
            return super().finish()

    hops = [Lossy(frame_worker(index, 2), 3) for index in range(2)]
    tiers = tiers_of([local(), SparkTier(hops, SHAPE, DTYPES["fp32"], 8)], table(1, 2))
    asked = draw_dispatch(SHAPE, 1, 4)
    wanted = run(tiers, 1, asked)
    hops[1].lose = True
    with pytest.raises(NodeLost):
        run(tiers, 1, asked)
    tiers.abandon()
    assert all(hop.reply is None for hop in hops)
    hops[1].lose = False
    other = draw_dispatch(SHAPE, 9, 2)
    fresh = tiers_of([local()], table(None, 1))
    assert torch.equal(run(tiers, 2, other), run(fresh, 2, other))
    assert torch.equal(run(tiers, 1, asked), wanted)


def test_hops_are_counted() -> None:
    tiers = tiers_of([local(), sparks(2)], table(1, 2))
    for _ in range(3):
        run(tiers, 1, draw_dispatch(SHAPE, 1, 1))
    run(tiers, 2, draw_dispatch(SHAPE, 2, 5))
    both = [tiers.log.figures(index) for index in range(2)]
    assert sum(figures.experts for figures in both) == 3 * 4 + 5 * 4
    for figures in both:
        assert figures.rows <= 3 + 5
        assert figures.single_row_hops <= 3
    assert tiers.log.tiers == ("hbm", "spark")


def test_a_dispatch_of_another_epoch_is_refused() -> None:
    worker = frame_worker(0, 2)
    asked = draw_dispatch(SHAPE, 1, 2)
    parts = (asked.ids, asked.weights, asked.x)
    payload = memoryview(bytearray(b"".join(as_bytes(part) for part in parts)))
    with pytest.raises(FabricError, match="spark-1 holds epoch 3; the dispatch is of 2"):
        worker.serve(2, 1, payload, 2)
    with pytest.raises(FabricError, match="layer 9"):
        worker.serve(3, 9, payload, 2)
    with pytest.raises(FabricError, match="dispatch payload of"):
        worker.serve(3, 1, payload[:-4], 2)
    with pytest.raises(FabricError, match="dispatch payload of"):
        worker.serve(3, 1, payload, 3)


@pytest.mark.parametrize("top_k", [1, 3, 4])
@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=list(DTYPES))
def test_payloads_come_back(top_k: int, dtype: torch.dtype) -> None:
    shape = tiny_shape(top_k=top_k)
    layout = DispatchLayout(shape, dtype)
    asked = draw_dispatch(shape, 1, 3, dtype)
    payload = bytearray(b"".join(as_bytes(part) for part in (asked.ids, asked.weights, asked.x)))
    assert len(payload) == layout.dispatch_bytes(3)
    ids, weights, x = layout.read_dispatch(memoryview(payload), 3)
    assert torch.equal(ids, asked.ids)
    assert torch.equal(weights, asked.weights)
    assert torch.equal(x, asked.x)
    partial = torch.arange(3 * shape.latent, dtype=torch.int64).view(3, -1) - 2**40
    answer = bytearray(as_bytes(asked.ids)) + bytearray(as_bytes(partial))
    assert len(answer) == layout.partial_bytes(3)
    served, found = layout.read_partial(memoryview(answer), 3)
    assert torch.equal(served, asked.ids)
    assert torch.equal(found, partial)
    with pytest.raises(FabricError, match="partial payload"):
        layout.read_partial(memoryview(answer)[:-1], 3)
