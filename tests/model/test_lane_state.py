"""A lane's state: committed or untouched, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from k3_kernels.kda import BLOCK_ROWS
from torch import Tensor

from k3d.engine.offline import OfflineModel
from k3d.errors import NodeLost
from k3d.model.kda_state import KdaSnapshot
from k3d.model.kimi_k3 import Span
from k3d.model.lane_state import LaneState
from k3d.model.row_pages import PAGE_ROWS, RowPages
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]
MINI = Path(__file__).parents[2] / "banks" / "k3-mini"
IDS = [7, 300, 21, 44, 9, 180, 2, 65, 65, 12, 90, 33, 301, 5, 6, 77, 210, 4, 19, 23]
IDS += [(37 * i + 11) % 300 for i in range(60)]


class FailsIn:
    """Experts that lose a node in the middle of one layer."""

    def __init__(self, experts: Any, layer: int, *, in_finish: bool) -> None:
        self.experts, self.layer, self.in_finish = experts, layer, in_finish
        self.now = 0

    def start(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
        self.now = layer
        if layer == self.layer and not self.in_finish:
            raise NodeLost("spark-1", "spark-1 stopped answering")
        self.experts.start(layer, ids, weights, x)

    def finish(self) -> Tensor:
        if self.now == self.layer:
            raise NodeLost("spark-1", "spark-1 stopped answering")
        return self.experts.finish()

    def abandon(self) -> None:
        self.experts.abandon()


def committed(lane: LaneState) -> list[Tensor]:
    """Copies of everything a later pass may read."""
    filled = lane.position % BLOCK_ROWS
    tensors = [lane.kda.conv]
    for rows in lane.kda.rows:
        tensors += [rows.anchor, rows.inverse_key[:filled], rows.delta[:filled]]
        tensors.append(rows.decay[:filled])
    tensors += [
        lane._gather(lane._pool.latents[layer], lane.position) for layer in lane._pool.latents
    ]
    return [tensor.clone() for tensor in tensors]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(params=["fp32", "bf16"])
def model(tiny: Tiny, request: pytest.FixtureRequest) -> OfflineModel:
    return OfflineModel(tiny(TinyModel(seed=1)), request.param, len(IDS))


def new_lane(model: OfflineModel) -> LaneState:
    return LaneState.alone(model.config, model.model.dtype, len(IDS))


def run(model: OfflineModel, span: Span, experts: Any = None) -> Tensor:
    with torch.inference_mode():
        return model.model.forward([span], experts or model.experts, slice(None)).logits


def go_on(model: OfflineModel, lane: LaneState, ids: list[int], step: int = 1) -> None:
    """Decode known ids, `step` rows a pass."""
    with torch.inference_mode():
        for start in range(0, len(ids), step):
            span = Span(lane, ids[start : start + step], ahead=True)
            model.model.forward([span], model.experts, slice(-1, None))
            model.model.commit(span, len(span.tokens))


@pytest.mark.parametrize("layer", [1, 4, 8])
@pytest.mark.parametrize("in_finish", [False, True], ids=["start", "finish"])
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("ahead", [False, True], ids=["chunk", "ahead"])
def test_a_failed_pass_changes_no_bit(
    model: OfflineModel, layer: int, in_finish: bool, rows: int, ahead: bool
) -> None:
    lane = new_lane(model)
    go_on(model, lane, IDS[:10], 10)
    before = committed(lane)
    for _ in range(2):
        failing = FailsIn(model.experts, layer, in_finish=in_finish)
        with pytest.raises(NodeLost):
            run(model, Span(lane, IDS[10 : 10 + rows], ahead=ahead), failing)
        model.experts.abandon()
        assert lane.position == 10
        assert same(committed(lane), before)
    again = run(model, Span(lane, IDS[10 : 10 + rows], ahead=ahead))
    assert torch.equal(again, model.logits(IDS, 20)[10 : 10 + rows])


@pytest.mark.parametrize("start", [0, 9, 12, 15, 16])
def test_any_accepted_prefix_equals_decoding_it_row_by_row(model: OfflineModel, start: int) -> None:
    """Seven drafts of which 0..7 are right: KDA state, conv history and latent rows to the bit."""
    wrong = [(each + 1) % 300 for each in IDS]
    for accepted in range(8):
        drafted, plain = new_lane(model), new_lane(model)
        for lane in (drafted, plain):
            go_on(model, lane, IDS[:start], 5)
        right = IDS[start : start + 1 + accepted]
        span = Span(drafted, [*right, *wrong[start + 1 + accepted : start + 8]], ahead=True)
        assert len(span.tokens) == 8
        run(model, span)
        with torch.inference_mode():
            model.model.commit(span, len(right))
        go_on(model, plain, right)
        assert drafted.position == plain.position == start + 1 + accepted
        assert same(committed(drafted), committed(plain)), f"{accepted} accepted from {start}"
        found, wanted = (
            run(model, Span(lane, IDS[lane.position : lane.position + 20], ahead=True))
            for lane in (drafted, plain)
        )
        assert torch.equal(found, wanted)


def test_a_pass_taken_back_leaves_nothing(model: OfflineModel) -> None:
    """Drafted rows that are not committed: the next pass runs as if they never had."""
    wanted = model.logits(IDS, 20)
    lane = new_lane(model)
    position = 0
    for step in (3, 1, 9, 2, 5, 20, 13, 11, 16):
        run(model, Span(lane, [1] * min(6, len(IDS) - position), ahead=True))  # refused whole
        span = Span(lane, IDS[position : position + step], ahead=step < 12)
        assert torch.equal(run(model, span), wanted[position : position + step])
        with torch.inference_mode():
            model.model.commit(span, step)
        position += step
    assert lane.position == position == len(IDS)


def test_poison_in_a_refused_row_is_never_read(model: OfflineModel) -> None:
    lane = new_lane(model)
    go_on(model, lane, IDS[:5], 5)
    for rows in lane.kda.rows:
        for tensor in (rows.inverse_key, rows.delta, rows.decay):
            tensor[5:] = float("nan")
    for pool in lane._pool.latents.values():
        pool.view(-1, pool.shape[-1])[lane._places(5, lane.capacity)] = float("nan")
    assert torch.equal(run(model, Span(lane, IDS[5:], ahead=True)), model.logits(IDS, 20)[5:])


def test_lanes_in_one_pass_are_as_if_alone(model: OfflineModel) -> None:
    """A chunk, a verification and a plain row side by side."""
    wanted = [model.logits(ids, 20) for ids in (IDS, IDS[::-1], IDS[5:])]
    pool = RowPages(model.config, model.model.dtype, 8)
    lanes = [LaneState(model.config, model.model.dtype, pool) for _ in range(3)]
    assert all(lane.reserve(40) for lane in lanes)
    counts = (11, 4, 1)
    for _ in range(3):
        spans = [
            Span(lane, ids[lane.position : lane.position + count], ahead=count < 10)
            for lane, ids, count in zip(lanes, (IDS, IDS[::-1], IDS[5:]), counts, strict=True)
        ]
        with torch.inference_mode():
            logits = model.model.forward(spans, model.experts, slice(None)).logits
            for span, rows, whole in zip(spans, logits.split(list(counts)), wanted, strict=True):
                at = span.lane.position
                assert torch.equal(rows, whole[at : at + len(rows)])
                model.model.commit(span, len(rows))


@pytest.mark.parametrize("steps", [[64], [70], [60, 4], [60, 20], [63, 1], [61, 7], [50, 9, 8]])
def test_a_snapshot_is_taken_on_the_border_and_resumed(
    model: OfflineModel, steps: list[int]
) -> None:
    """Whether a chunk ends there or runs over it, a row reaches it or accepted rows pass it."""
    pool = RowPages(model.config, model.model.dtype, 4)
    lane = LaneState(model.config, model.model.dtype, pool)
    assert lane.reserve(len(IDS))
    taken: dict[int, KdaSnapshot] = {}
    with torch.inference_mode():
        for step in steps:
            tokens = IDS[lane.position : lane.position + step]
            span = Span(lane, tokens, ahead=step < 10, snapshot_every=PAGE_ROWS)
            model.model.forward([span], model.experts, slice(-1, None))
            taken |= model.model.commit(span, step)
    assert list(taken) == [PAGE_ROWS]
    snapshot = taken[PAGE_ROWS]
    other = LaneState(model.config, model.model.dtype, pool)
    pool.hold(lane.pages[0])
    other.resume([lane.pages[0]], snapshot)
    assert other.position == PAGE_ROWS
    assert other.reserve(len(IDS))
    found = run(model, Span(other, IDS[PAGE_ROWS:]))
    assert torch.equal(found, model.logits(IDS, 20)[PAGE_ROWS:])
    lane.release()
    assert pool.free == 2
    other.release()
    assert pool.free == pool.total == 4


def test_verification_keeps_little() -> None:
    """Sixteen lanes of eight rows of k3-mini against a copy of the recurrent state a row."""
    model = OfflineModel(MINI, "bf16", 128)
    pool = RowPages(model.config, model.model.dtype, 16)
    lanes = [LaneState(model.config, model.model.dtype, pool) for _ in range(16)]
    assert all(lane.reserve(8) for lane in lanes)
    with torch.inference_mode():
        spans = [Span(lane, IDS[:8], ahead=True) for lane in lanes]
        model.model.forward(spans, model.experts, slice(0, 1))
    kept = sum(lane.record_bytes for lane in lanes)
    assert kept > 0
    assert 16 * 8 * lanes[0].kda.snapshot().size_bytes > 20 * kept


def test_pages_run_out_and_come_back(model: OfflineModel) -> None:
    pool = RowPages(model.config, model.model.dtype, 2)
    one, other = (LaneState(model.config, model.model.dtype, pool) for _ in range(2))
    assert one.reserve(PAGE_ROWS)
    assert not other.reserve(PAGE_ROWS + 1)
    assert pool.free == 0
    other.release()
    assert one.reserve(2 * PAGE_ROWS)
    assert RowPages.bytes_each(model.config, model.model.dtype) == sum(
        latents[0].nbytes for latents in pool.latents.values()
    )
