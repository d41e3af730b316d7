"""The training model, loaded with a golden checkpoint's decoded weights, gives its logits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from banks.recipe.config import K3Config
from banks.recipe.model import K3
from banks.recipe.release import load_release

ROOT = Path(__file__).resolve().parents[2]


def golden(name: str) -> Path:
    """Folder of a golden checkpoint: beside the tests, else beside the checkout."""
    places = (ROOT / "tests" / "golden" / name, ROOT.parent / "shared" / "golden" / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"golden checkpoint {name} is in none of {places}")


@pytest.mark.parametrize("name", ["k3-golden-nvfp4", "k3-golden-mxfp4"])
def test_training_model_reproduces_golden_logits(name: str) -> None:
    folder = golden(name)
    model = K3(K3Config.read(folder / "config.json"))
    load_release(model, folder)
    ids = json.loads((folder / "golden.json").read_text())["ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0].double().numpy()
    expected = np.load(folder / "logits.npy")
    error = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
    assert error < 2e-5
    assert (logits.argmax(-1) == expected.argmax(-1)).all()
