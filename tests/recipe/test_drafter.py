"""The shipped drafter: size, form, the same drafts in the daemon's code, acceptance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from banks.recipe.config import K3Config
from banks.recipe.drafter_evaluate import measure
from banks.recipe.drafter_export import LIMIT_BYTES, read_drafter
from banks.recipe.drafter_model import MINI, drafted
from banks.recipe.drafter_rounds import Rounds, replayed
from banks.recipe.drafter_target import features, freeze
from banks.recipe.drafter_text import padded_prompts, questions, written
from banks.recipe.model import K3
from banks.recipe.release import load_release
from banks.recipe.tokens import Tokens
from k3d.model.config import ModelConfig
from k3d.model.drafter import load_drafter

FOLDER = Path(__file__).resolve().parents[2] / "banks" / "k3-mini"
PLACE = FOLDER / "drafter"


def test_it_is_small_and_of_the_recipes_shape() -> None:
    assert sum(path.stat().st_size for path in PLACE.iterdir()) <= LIMIT_BYTES
    drafter, temperatures = read_drafter(PLACE)
    assert drafter.c == MINI
    assert len(temperatures) == MINI.block
    assert all(t > 0.0 for t in temperatures)


def test_the_daemon_drafts_what_the_recipe_drafts() -> None:
    model = K3(K3Config.read(FOLDER / "config.json"))
    load_release(model, FOLDER)
    drafter, temperatures = read_drafter(PLACE)
    embed, head = model.model.embed_tokens.weight.detach(), model.lm_head.weight.detach()
    served = load_drafter(PLACE, ModelConfig.from_folder(FOLDER), embed, head)
    assert (served.taps.layers, served.taps.stream) == (MINI.taps, "materialized")
    ids = torch.tensor([questions(FOLDER)[0][1]])
    taps, _ = features(model, ids, MINI.taps)
    anchors = torch.tensor([[8, 20, ids.shape[1] - 1]])
    drafts, logits = drafted(drafter, embed, head, ids, taps, anchors)
    rows = served.context_rows(taps[0], torch.arange(ids.shape[1]), ids[0].roll(-1))
    places = anchors[0].tolist()
    proposals = served.propose(
        [rows[:p] for p in places], ids[0, anchors[0]].tolist(), places, [7, 7, 7]
    )
    chances = torch.sigmoid(logits[0] / torch.tensor(temperatures))
    for proposal, tokens, chance in zip(proposals, drafts[0], chances, strict=True):
        assert list(proposal.tokens) == tokens.tolist()
        torch.testing.assert_close(torch.tensor(proposal.confidence), chance, atol=1e-4, rtol=1e-3)


def test_a_few_held_out_prompts_are_accepted() -> None:
    config = K3Config.read(FOLDER / "config.json")
    model = K3(config)
    load_release(model, FOLDER)
    freeze(model)
    drafter, _ = read_drafter(PLACE)
    asked = [prompt for _, prompt in questions(FOLDER)[1:40:10]]
    streams = np.load(FOLDER / "heldout.npz")["streams"][::8, :32].astype(int).tolist()
    prompts = padded_prompts([*asked, *streams], config.pad)
    stop = Tokens.read(FOLDER / "tiktoken.model").end
    text = written(model, prompts, 96, MINI.taps, stop)
    embed, head = model.model.embed_tokens.weight, model.lm_head.weight
    rounds = replayed(drafter, embed, head, text)
    assert Rounds.joined(rounds[:4]).length >= 5.0
    assert Rounds.joined(rounds[4:]).length >= 2.4


@pytest.mark.campaign
def test_acceptance_on_all_held_out_text() -> None:
    report = measure(FOLDER, PLACE, asked=None, streams=None)
    for domain, least in (("chat", 2.5), ("documentation", 3.0)):
        figures = report[domain]
        assert figures["acceptance_length"] >= least
        assert figures["calibration_error_after"] < figures["calibration_error_before"]
