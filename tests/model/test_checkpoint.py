"""A checkpoint's tensors: consumed once each, read by header offsets, named by one digest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from k3d.errors import CheckpointError
from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint, Leftover
from k3d.model.weights import load_weights
from tests.model import shard_editing as edit
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]


def _stored(folder: Path, name: str) -> torch.Tensor:
    with safe_open(str(edit.shard_of(folder, name)), framework="pt") as shard:
        return shard.get_tensor(name)


def test_every_tensor_is_what_the_library_reads(golden: Path) -> None:
    checkpoint = Checkpoint(golden)
    names = json.loads((golden / edit.INDEX).read_text())["weight_map"]
    for full in names:
        found = checkpoint.read(full.removeprefix("language_model."))
        wanted = _stored(golden, full)
        if wanted.dtype == torch.float8_e4m3fn:
            wanted = wanted.view(torch.uint8)
        assert torch.equal(found, wanted)
    assert checkpoint.finish() == Leftover(0, 0)


def test_dense_part_and_experts_consume_every_tensor_once(golden: Path) -> None:
    checkpoint = Checkpoint(golden)
    load_weights(checkpoint)
    source = ExpertSource(checkpoint)
    with pytest.raises(CheckpointError, match="experts"):
        checkpoint.finish()
    for layer in source.shape.layers:
        for expert in range(source.shape.experts):
            source.record(layer, expert)
    assert checkpoint.finish() == Leftover(0, 0)
    with pytest.raises(CheckpointError, match="read twice"):
        load_weights(checkpoint)


def test_a_staged_bank_counts_as_consuming_the_experts(golden: Path) -> None:
    checkpoint = Checkpoint(golden)
    load_weights(checkpoint)
    ExpertSource(checkpoint).skip()
    assert checkpoint.finish() == Leftover(0, 0)


def test_vision_tensors_are_skipped_and_counted(tiny: Tiny) -> None:
    checkpoint = Checkpoint(tiny(TinyModel(vision=True)))
    load_weights(checkpoint)
    ExpertSource(checkpoint).skip()
    assert checkpoint.finish() == Leftover(4, 2 * (3 * 8 * 16 + 16 * 16))


def test_peek_consumes_nothing(golden: Path) -> None:
    checkpoint = Checkpoint(golden)
    one = checkpoint.peek("model.norm.weight")
    assert torch.equal(one, checkpoint.read("model.norm.weight"))
    with pytest.raises(CheckpointError, match="unknown"):
        checkpoint.finish()


def test_one_file_without_an_index(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny(TinyModel())
    tensors = {
        name: _stored(folder, name)
        for name in json.loads((folder / edit.INDEX).read_text())["weight_map"]
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    checkpoint = Checkpoint(tmp_path)
    load_weights(checkpoint)
    ExpertSource(checkpoint).skip()
    checkpoint.finish()


def test_digest_names_the_model(tiny: Tiny, tmp_path: Path) -> None:
    source = tiny(TinyModel())
    digest = Checkpoint(source).digest
    assert Checkpoint(edit.copy_of(source, tmp_path / "copy")).digest == digest
    assert Checkpoint(tiny(TinyModel(seed=1))).digest != digest
    assert Checkpoint(tiny(TinyModel(small=True))).digest != digest
    folder = tmp_path / "copy"
    edit.edit_json(folder / "config.json", lambda c: c.update(note="another"))
    assert Checkpoint(folder).digest != digest


def test_a_shard_that_shrinks_while_it_is_read(tiny: Tiny, tmp_path: Path) -> None:
    folder = edit.copy_of(tiny(TinyModel()), tmp_path / "copy")
    checkpoint = Checkpoint(folder)
    path = edit.shard_of(folder, "language_model.model.embed_tokens.weight")
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match=f"{path.name} ends before byte"):
        checkpoint.read("model.embed_tokens.weight")
