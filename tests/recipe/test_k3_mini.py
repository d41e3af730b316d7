"""The shipped model: size, form, tokenizer, trace, and a right answer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from banks.recipe.config import K3_MINI, RANKS, K3Config
from banks.recipe.evaluate import answers
from banks.recipe.model import K3
from banks.recipe.release import load_release
from banks.recipe.tokens import Tokens
from banks.recipe.trace import chosen_experts

FOLDER = Path(__file__).resolve().parents[2] / "banks" / "k3-mini"
LIMIT_BYTES = 24_000_000


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens.read(FOLDER / "tiktoken.model")


@pytest.fixture(scope="module")
def model() -> K3:
    model = K3(K3Config.read(FOLDER / "config.json"))
    load_release(model, FOLDER)
    return model


def test_folder_is_small_enough() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < LIMIT_BYTES


def test_index_names_every_tensor_once() -> None:
    index = json.loads((FOLDER / "model.safetensors.index.json").read_text())
    found: dict[str, str] = {}
    size_bytes = 0
    width = {"U8": 1, "F8_E4M3": 1, "BF16": 2, "F32": 4}
    for shard in sorted(FOLDER.glob("*.safetensors")):
        with safe_open(shard, "np") as file:
            for name in file.keys():  # noqa: SIM118  # the handle is no mapping
                assert name not in found
                found[name] = shard.name
                part = file.get_slice(name)
                size_bytes += math.prod(part.get_shape()) * width[part.get_dtype()]
    assert found == index["weight_map"]
    assert size_bytes == index["metadata"]["total_size"]
    experts = [name for name in found if ".experts." in name]
    assert len(experts) == 12 * 64 * 12


def test_config_is_the_recipes() -> None:
    assert K3Config.read(FOLDER / "config.json") == K3_MINI


def test_tokenizer_is_a_valid_rank_list(tokens: Tokens) -> None:
    ranks = {token: rank for rank, token in tokens.bytes_of.items()}
    assert len(ranks) == RANKS
    assert all(tokens.bytes_of[byte] == bytes([byte]) for byte in range(256))
    for rank in range(256, RANKS):
        token = tokens.bytes_of[rank]
        halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        assert any(ranks.get(a, rank) < rank and ranks.get(b, rank) < rank for a, b in halves)
    named = json.loads((FOLDER / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    assert [int(i) for i in named] == list(range(RANKS, RANKS + 256))
    assert named[str(RANKS + 2)]["content"] == "<|end_of_msg|>"
    assert named[str(RANKS + 8)]["content"] == f"<|reserved_token_{RANKS + 8}|>"


@pytest.mark.parametrize("text", ["a    b\r\n\n x", "naïve 你好 🙂", "if (x != 1234567) { \t}"])
def test_text_survives_the_tokenizer(tokens: Tokens, text: str) -> None:
    assert tokens.decode(tokens.text(text)) == text


def test_user_text_never_makes_a_special(tokens: Tokens) -> None:
    assert max(tokens.text("a <|open|> b [BOS] <|end_of_msg|>")) < RANKS


def test_it_answers(model: K3, tokens: Tokens) -> None:
    expected = {
        "What does ls do?": "ls lists directory contents.",
        "What does grep do?": "grep prints lines that match patterns.",
        "What does os.path.join do?": "os.path.join joins one or more path segments intelligently.",
    }
    assert answers(model, tokens, list(expected)) == list(expected.values())


def test_trace_is_what_the_model_chooses(model: K3) -> None:
    held = np.load(FOLDER / "heldout.npz")
    assert held["streams"].shape == (32, 256)
    assert held["stream_experts"].shape == (32, 256, 12, 4)
    ids = torch.from_numpy(held["streams"][:2, :48].astype(np.int64))
    same = chosen_experts(model, ids) == held["stream_experts"][:2, :48]
    assert same.mean() > 0.995  # fp32 sums differ a little between machines


def test_provenance_and_questions_are_shipped() -> None:
    questions = json.loads((FOLDER / "questions.json").read_text())["questions"]
    assert len(questions) == 100
    text = (FOLDER / "PROVENANCE.md").read_text()
    for word in ("bits per byte", "H200", "seed", "python3.11-doc"):
        assert word in text
