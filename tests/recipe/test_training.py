"""A tiny model trains on the CPU, is released, read back and traced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from banks.recipe.batches import IGNORED, ChatRows
from banks.recipe.config import TEST_SHAPE, K3Config
from banks.recipe.model import K3
from banks.recipe.muon import orthogonal
from banks.recipe.release import decoded_tensors, load_release, write_release
from banks.recipe.trace import chosen_experts, spread_streams
from banks.recipe.train import Plan, Trainer

PLAN = Plan(text_rows=4, text_tokens=32, chat_rows=2, chat_tokens=32, rounding_from=0.7)


@pytest.fixture
def work(tmp_path: Path, seed: int) -> Path:
    """A stream that counts upwards and chats of one question."""
    start = seed % 200
    stream = ((np.arange(4000) + start) % 200).astype(np.uint16)
    np.savez(tmp_path / "text.npz", train=stream, heldout=stream)
    chat = np.array([259, 1, 2, 3, 261, 7, 8, 9, 258], np.uint16)
    np.savez(
        tmp_path / "chats.npz",
        tokens=np.tile(chat, 3),
        offsets=np.array([0, 9, 18, 27]),
        prompts=np.array([5, 5, 5], np.uint8),
        weights=np.ones(3, np.float32),
    )
    return tmp_path


def test_chat_rows_learn_answers_alone(work: Path) -> None:
    rows = ChatRows(work / "chats.npz", pad=511, device=torch.device("cpu"))
    ids, targets = rows.draw(4, 64, torch.Generator().manual_seed(0))
    assert ids.shape == targets.shape == (4, 64)
    assert ids[0, :9].tolist() == [259, 1, 2, 3, 261, 7, 8, 9, 258]
    assert targets[0, :9].tolist() == [IGNORED] * 4 + [7, 8, 9, 258, IGNORED]


def test_loss_falls_and_the_record_is_written(work: Path) -> None:
    config = replace(TEST_SHAPE, pad=511)
    trainer = Trainer(config, PLAN, work, seed=1)
    first = float(trainer.step(0.1)["text"])
    trainer.run(steps=20, minutes=None)
    last = float(trainer.step(0.99)["text"])
    assert last < first - 1.0
    assert (work / "weights.pt").is_file()
    assert '"steps": 20' in (work / "train.json").read_text()
    bias = trainer.model.moe()[0].gate.e_score_correction_bias
    assert float(bias.abs().max()) > 0.0
    assert abs(float(bias.mean())) < 1e-6


def test_release_round_trip_keeps_the_logits(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = K3(TEST_SHAPE)
    write_release(model, tmp_path)
    config = K3Config.read(tmp_path / "config.json")
    assert config == TEST_SHAPE
    read = K3(config)
    load_release(read, tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names[0] == "model-00001-of-000006.safetensors"
    write_release(read, tmp_path / "again")
    again = dict(decoded_tensors(tmp_path / "again"))
    for name, tensor in decoded_tensors(tmp_path):
        torch.testing.assert_close(again[name], tensor, rtol=1e-6, atol=0.0)
    model.set_rounding(True)
    ids = torch.arange(32)[None]
    with torch.no_grad():
        error = (model(ids) - read(ids)).norm() / model(ids).norm()
    assert float(error) < 0.05  # what is left is the bf16 rounding of the plain matrices


def test_orthogonal_updates_have_even_singular_values(seed: int) -> None:
    matrices = torch.randn(3, 16, 40, generator=torch.Generator().manual_seed(seed))
    singular = torch.linalg.svdvals(orthogonal(matrices))
    assert float(singular.min()) > 0.4
    assert float(singular.max()) < 1.4


def test_trace_has_ascending_distinct_experts() -> None:
    torch.manual_seed(4)
    model = K3(TEST_SHAPE)
    streams = spread_streams(np.arange(500) % 200, 3, 16)
    experts = chosen_experts(model, torch.from_numpy(streams))
    assert experts.shape == (3, 16, 4, 2)
    assert (np.diff(experts.astype(int), axis=-1) > 0).all()
