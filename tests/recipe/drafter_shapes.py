"""A tiny target and a drafter for it, and work files of a few tokens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from banks.recipe.config import TEST_SHAPE
from banks.recipe.drafter_model import DrafterConfig
from banks.recipe.drafter_step import Source
from banks.recipe.drafter_target import freeze
from banks.recipe.drafter_train import Plan
from banks.recipe.model import K3
from banks.recipe.release import write_release
from banks.recipe.tokens import write_tokenizer

SHAPE = DrafterConfig(
    vocab=512, hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, width=64, rank=8,
    taps=(1, 4), mask=500,
)  # fmt: skip
PLAN = Plan(
    chats=Source(4, 144, 2, 2, 4, 0.4),
    documents=Source(4, 40, 2, 2, 4, 0.4),
    conversations=Source(2, 64, 1, 1, 4, 0.1),
    corpus=Source(2, 32, 1, 1, 4, 0.1),
    prefix=(4, 16),
    heldout=2,
    heldout_prefix=16,
)


def tiny_target(seed: int) -> K3:
    """A random frozen target whose AttnRes mixes are not even."""
    torch.manual_seed(seed)
    model = K3(TEST_SHAPE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "res_proj" in name:
                parameter.normal_()
    return freeze(model)


def write_work(folder: Path, seed: int) -> None:
    """A release, its tokenizer and questions, a stream that counts and chats of one question."""
    torch.manual_seed(seed)
    model = K3(TEST_SHAPE)
    model.lm_head.weight.data *= 8.0  # a target that is sure of what it writes
    write_release(model, folder)
    write_tokenizer({bytes([i]): i for i in range(256)}, folder)
    asked = [{"kind": "c", "question": q, "answer": "a"} for q in ("a?", "bb?", "c?")]
    (folder / "questions.json").write_text(json.dumps({"questions": asked}))
    stream = ((np.arange(4000) + seed % 200) % 200).astype(np.uint16)
    np.savez(folder / "text.npz", train=stream, heldout=stream)
    chat = np.array([259, 1, 2, 3, 261, 7, 8, 9, 258], np.uint16)
    np.savez(
        folder / "chats.npz",
        tokens=np.tile(chat, 30),
        offsets=np.arange(31) * 9,
        prompts=np.full(30, 5, np.uint8),
        weights=np.ones(30, np.float32),
    )
