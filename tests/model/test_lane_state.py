"""A lane's state: committed or untouched, to the bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from k3d.engine.offline import OfflineModel
from k3d.errors import NodeLost
from k3d.model.lane_state import LaneState
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]
IDS = [7, 300, 21, 44, 9, 180, 2, 65, 65, 12, 90, 33, 301, 5, 6, 77, 210, 4, 19, 23]


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
    tensors = []
    for sides in lane._kda.values():
        side = sides[lane._committed]
        rows = side.rows
        tensors += [rows.anchor, rows.inverse_key, rows.delta, rows.decay, side.conv]
    tensors += [latents[: lane.position] for latents in lane._latents.values()]
    return copy.deepcopy(tensors)


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(params=["fp32", "bf16"])
def model(tiny: Tiny, request: pytest.FixtureRequest) -> OfflineModel:
    return OfflineModel(tiny(TinyModel(seed=1)), request.param, 20)


def run(model: OfflineModel, lane: LaneState, ids: list[int], experts: Any = None) -> Tensor:
    with torch.inference_mode():
        return model.model.forward(torch.tensor(ids), lane, experts or model.experts, slice(None))


@pytest.mark.parametrize("layer", [1, 4, 8])
@pytest.mark.parametrize("in_finish", [False, True], ids=["start", "finish"])
@pytest.mark.parametrize("rows", [1, 7])
def test_a_failed_pass_changes_no_bit(
    model: OfflineModel, layer: int, in_finish: bool, rows: int
) -> None:
    lane = LaneState(model.config, model.model.dtype, len(IDS))
    run(model, lane, IDS[:10])
    lane.commit(10)
    before = committed(lane)
    for _ in range(2):
        failing = FailsIn(model.experts, layer, in_finish=in_finish)
        with pytest.raises(NodeLost):
            run(model, lane, IDS[10 : 10 + rows], failing)
        model.experts.abandon()
        assert lane.position == 10
        assert same(committed(lane), before)
    again = run(model, lane, IDS[10 : 10 + rows])
    assert torch.equal(again, model.logits(IDS, 20)[10 : 10 + rows])


def test_a_pass_taken_back_leaves_nothing(model: OfflineModel) -> None:
    """Drafted rows that are not committed: the next pass runs as if they never had."""
    wanted = model.logits(IDS, 20)
    lane = LaneState(model.config, model.model.dtype, len(IDS))
    position = 0
    for step in (3, 1, 9, 2, 5):
        run(model, lane, [1] * min(6, len(IDS) - position))  # a draft, refused whole
        found = run(model, lane, IDS[position : position + step])
        assert torch.equal(found, wanted[position : position + step])
        lane.commit(step)
        position += step
    assert lane.position == position == len(IDS)


def test_lanes_do_not_touch_each_other(model: OfflineModel) -> None:
    one, other = (LaneState(model.config, model.model.dtype, len(IDS)) for _ in range(2))
    wanted = model.logits(IDS, 20)
    backwards = model.logits(IDS[::-1], 20)
    for position in range(0, len(IDS), 4):
        part = slice(position, position + 4)
        assert torch.equal(run(model, one, IDS[part]), wanted[part])
        one.commit(4)
        assert torch.equal(run(model, other, IDS[::-1][part]), backwards[part])
        other.commit(4)


def test_a_copied_lane_goes_on_like_the_first(model: OfflineModel) -> None:
    """A prefix is reused by its whole state: latents alone would not do."""
    lane = LaneState(model.config, model.model.dtype, len(IDS))
    run(model, lane, IDS[:13])
    lane.commit(13)
    kept = copy.deepcopy(lane)
    run(model, lane, IDS[13:])
    lane.commit(7)
    assert torch.equal(run(model, kept, IDS[13:]), model.logits(IDS, 20)[13:])


def test_positions_beyond_the_prompt_may_hold_anything(model: OfflineModel) -> None:
    lane = LaneState(model.config, model.model.dtype, len(IDS))
    for layer in model.config.mla_layers:
        lane.latents(layer).fill_(1e4)
    assert torch.equal(run(model, lane, IDS), model.logits(IDS, 20))
