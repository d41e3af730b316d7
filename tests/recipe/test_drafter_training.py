"""Loss, rounds, calibration; a tiny drafter learns, is written and read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from banks.recipe.drafter_calibrate import calibration_error, fitted_temperatures, survival
from banks.recipe.drafter_export import crops_between, read_drafter, write_drafter
from banks.recipe.drafter_loss import BlockLoss
from banks.recipe.drafter_model import Drafter, drafted
from banks.recipe.drafter_provenance import placed
from banks.recipe.drafter_rounds import Rounds, rounds_of_row
from banks.recipe.drafter_step import batch_loss, draw
from banks.recipe.drafter_target import features
from banks.recipe.drafter_train import Trainer
from tests.recipe.drafter_shapes import PLAN, SHAPE, tiny_target, write_work


def test_loss_and_its_gradient_are_the_published_ones(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    h, e, w2 = (torch.randn(s, generator=g) for s in ((6, 20), (6, 8), (50, 8)))
    head, t = torch.randn(50, 20, generator=g), 3.0 * torch.randn(6, 50, generator=g)
    y, weight = torch.randint(50, (6,), generator=g), torch.rand(6, generator=g)
    leaves = [x.requires_grad_() for x in (h, e, w2)]
    total, ce, l1 = BlockLoss.apply(h, e, head, w2, t, y, weight)
    z = h @ head.T + e @ w2.T
    q, p = torch.softmax(z, -1), torch.softmax(t, -1)
    plain_ce = functional.cross_entropy(z, y, reduction="none")
    plain_l1 = (q - p).abs().sum(-1)
    torch.testing.assert_close(ce, plain_ce.detach())
    torch.testing.assert_close(l1, plain_l1.detach())
    expected = (weight * (0.1 * plain_ce + 0.9 * plain_l1)).sum()
    torch.testing.assert_close(total, expected)
    got, want = torch.autograd.grad(total, leaves), torch.autograd.grad(expected, leaves)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_a_block_sees_only_what_is_before_its_anchor(seed: int) -> None:
    target = tiny_target(seed)
    drafter = Drafter(SHAPE).requires_grad_(False)
    embed = target.model.embed_tokens.weight
    ids = torch.randint(500, (1, 24), generator=torch.Generator().manual_seed(seed))
    taps, _ = features(target, ids, SHAPE.taps)
    anchors = torch.tensor([[4, 9, 15]])
    together = drafter.blocks(embed, ids, taps, anchors)
    for i, p in enumerate((4, 9, 15)):
        # Rows from the anchor on are not there yet, and the anchor's own taps neither.
        alone = drafter.blocks(embed, ids[:, : p + 1], taps[:, : p + 1], torch.tensor([[p]]))
        torch.testing.assert_close(together[:, i], alone[:, 0], atol=1e-5, rtol=1e-4)


def test_training_lowers_the_loss_and_leaves_a_record(tmp_path: Path, seed: int) -> None:
    write_work(tmp_path, seed)
    trainer = Trainer(SHAPE, PLAN, tmp_path, tmp_path, seed=1)
    rows = trainer.write(1e9)
    assert rows == {"corpus": 2, "conversations": 2, "chats": 4, "documents": 4}
    picks, anchors = draw(trainer.texts["documents"], PLAN.documents, trainer.generator)
    text = trainer.texts["documents"]
    assert bool((anchors >= text.starts[picks][:, None]).all())
    assert bool((anchors < text.ends[picks][:, None] - 1).all())

    def loss(drafter: Drafter) -> float:
        with torch.no_grad():
            parts = batch_loss(drafter, trainer.embed, trainer.head, text, picks, anchors)
        return float(parts[0])

    trainer.run(steps=40, seconds=None, out=tmp_path / "out", every_s=1e9)
    fresh = Drafter(SHAPE)
    assert loss(trainer.drafter) < loss(fresh) - 0.5
    record = json.loads((tmp_path / "out" / "drafter.json").read_text())
    assert record["steps"] == 40
    assert set(record["heldout"][-1]) == {"step", "seconds", "chat", "documentation"}
    read, temperatures = read_drafter(tmp_path / "out" / "drafter")
    assert temperatures == [1.0] * 7
    for name, tensor in trainer.average.state_dict().items():
        torch.testing.assert_close(read.state_dict()[name], tensor.bfloat16().float())


def test_export_round_trip_keeps_the_drafts(tmp_path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    target, drafter = tiny_target(seed), Drafter(SHAPE).requires_grad_(False)
    for parameter in drafter.parameters():
        parameter.copy_(parameter.bfloat16().float())
    write_drafter(drafter, [1.0, 0.5, 2.0, 1.0, 1.0, 1.0, 1.5], tmp_path)
    read, temperatures = read_drafter(tmp_path)
    assert read.c == SHAPE
    assert temperatures == [1.0, 0.5, 2.0, 1.0, 1.0, 1.0, 1.5]
    ids = torch.randint(500, (2, 20))
    taps, _ = features(target, ids, SHAPE.taps)
    embed, head = target.model.embed_tokens.weight, target.lm_head.weight
    anchors = torch.tensor([[3, 8], [12, 19]])
    for a, b in zip(
        drafted(drafter, embed, head, ids, taps, anchors),
        drafted(read, embed, head, ids, taps, anchors),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_rounds_of_a_row_by_hand() -> None:
    ids = np.array([9, 9, 1, 2, 3, 4, 5, 6])
    drafts = np.zeros((8, 3), np.int64)
    drafts[2] = (2, 3, 0)  # two right: tokens 2, 3 and the target's own 4
    drafts[5] = (5, 6, 7)  # all that is left is right
    confidence = np.arange(24, dtype=np.float32).reshape(8, 3)
    rounds = rounds_of_row(ids, 2, 8, drafts, confidence)
    assert rounds.accepted.tolist() == [2, 2]
    assert rounds.room.tolist() == [5, 2]
    assert rounds.confidence.tolist() == [[6.0, 7.0, 8.0], [15.0, 16.0, 17.0]]
    assert rounds.length == 2.5  # 5 tokens in 2 rounds; the last has no room for a bonus
    good, known = rounds.survived()
    assert good.tolist() == [[True, True, False], [True, True, False]]
    assert known.tolist() == [[True, True, True], [True, True, False]]
    assert rounds.by_position() == [1.0, 1.0, 0.0]
    assert Rounds.joined([rounds, rounds]).length == 2.5


def test_temperatures_repair_confidence_that_is_too_sure(seed: int) -> None:
    random = np.random.default_rng(seed)
    true = random.normal(0.5, 1.0, (20_000, 3))
    good = np.cumprod(random.random(true.shape) < 1.0 / (1.0 + np.exp(-true)), 1).astype(bool)
    known = np.ones_like(good)
    told = true * 2.0
    fitted = fitted_temperatures(told, good, known)
    assert all(1.5 < t < 2.7 for t in fitted)
    before = calibration_error(survival(told, [1.0] * 3), good, known)
    assert calibration_error(survival(told, fitted), good, known) < 0.5 * before


def test_calibration_crops_are_not_the_evaluated_ones() -> None:
    stream = np.arange(100_000)
    crops = crops_between(stream, 31, 128)
    evaluated = np.linspace(0, len(stream) - 256, 32).astype(int)
    for crop in crops:
        assert all(crop[-1] < start or crop[0] >= start + 256 for start in evaluated)


def test_the_section_replaces_an_older_one() -> None:
    page = "# Provenance\n\n## Commands\n\na\n\n## Sources\n\nb\n"
    once = placed(page, "## Drafter\n\nold\n\n")
    twice = placed(once, "## Drafter\n\nnew\n\n")
    assert twice == "# Provenance\n\n## Commands\n\na\n\n## Drafter\n\nnew\n\n## Sources\n\nb\n"
