"""The published config and index of Kimi-K3, when a copy lies beside the checkout."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import PREFIX, VISION_PREFIXES, Checkpoint
from k3d.model.config import ModelConfig
from k3d.model.weights import load_weights
from k3d.safetensors_header import TensorEntry
from tests.tiny_checkpoint import TinyModel

REAL = Path(__file__).parents[3] / "shared" / "real"
CONFIG = REAL / "kimi-k3-config.json"
INDEX = REAL / "kimi-k3-model.safetensors.index.json.gz"


class Recorder(Checkpoint):
    """Stands for a checkpoint that holds whatever is asked for: notes names, reads nothing."""

    def __init__(self, config: ModelConfig, present: set[str]) -> None:
        self.config = config
        self.present = present
        self.asked: list[str] = []
        self.folder = Path("release")

    def __contains__(self, name: str) -> bool:
        return name in self.present

    def entry(self, name: str) -> TensorEntry:
        assert name in self.present, f"the release has no {name}"
        shape = (128,) if name.endswith("A_log") else (1,)
        return TensorEntry(PREFIX + name, Path("shard"), "F32", shape, 0, 4)

    def read(self, name: str, shape: tuple[int, ...] | None = None, *dtypes: str) -> Tensor:
        self.entry(name)
        self.asked.append(name)
        raw = {"U8", "F8_E4M3"} & set(dtypes)
        return torch.zeros(shape or (1,), dtype=torch.uint8 if raw else torch.float32)

    def peek(self, name: str, shape: tuple[int, ...] | None = None, *dtypes: str) -> Tensor:
        self.entry(name)
        return torch.ones(1)

    def claim(self, names: list[str]) -> None:
        for name in names:
            self.entry(name)
        self.asked.extend(names)


def names_asked(config: dict[str, Any], present: set[str]) -> list[str]:
    """Every tensor a load consumes. Widths are cut down first: names do not depend on them."""
    parsed = ModelConfig.from_document(config, CONFIG)
    narrow = ModelConfig(
        **{
            **parsed.__dict__,
            **dict.fromkeys(
                ("vocab_size", "hidden_size", "kda_heads", "kda_head_dim", "heads", "v_dim",
                 "q_lora_rank", "kv_lora_rank", "nope_dim", "rope_dim", "dense_width"), 2
            ),
            "latent_size": 32,
            "expert_width": 32,
        }
    )  # fmt: skip
    recorder = Recorder(narrow, present)
    load_weights(recorder)
    ExpertSource(recorder).skip()
    return recorder.asked


@pytest.mark.skipif(not CONFIG.exists(), reason="no copy of the published config")
def test_published_config() -> None:
    config = ModelConfig.from_document(json.loads(CONFIG.read_text()), CONFIG)
    assert len(config.mla_layers) == 24
    assert {3, 7, 87, 91, 92} <= config.mla_layers
    assert len(config.kda_layers) == 69
    assert config.moe_layers == tuple(range(1, 93))
    assert (config.experts, config.top_k, config.attn_res_block) == (896, 16, 12)
    assert (config.hidden_size, config.latent_size, config.expert_width) == (7168, 3584, 3072)
    assert (config.bos_id, config.eos_id, config.pad_id) == (163584, 163586, 163839)
    assert config.max_positions == 1048576


@pytest.mark.skipif(not INDEX.exists(), reason="no copy of the published index")
def test_published_index_is_consumed_exactly_once() -> None:
    with gzip.open(INDEX) as file:
        names = json.load(file)["weight_map"]
    text = {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
    vision = {name for name in names if name.startswith(VISION_PREFIXES)}
    assert len(text) + len(vision) == len(names) == 497_220
    asked = names_asked(json.loads(CONFIG.read_text()), text)
    assert len(asked) == len(set(asked))
    assert set(asked) == text


@pytest.mark.parametrize("release", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("layers", [9, 13])
def test_the_recorder_asks_for_what_tiny_releases_hold(
    release: Any, layers: int, tmp_path: Path
) -> None:
    """The same count on a checkpoint that can be loaded for real."""
    model = TinyModel(release=release, layers=layers)
    folder = model.write(tmp_path / "tiny")
    names = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    text = {name.removeprefix(PREFIX) for name in names}
    asked = names_asked(model.config(), text)
    assert len(asked) == len(set(asked))
    assert set(asked) == text
