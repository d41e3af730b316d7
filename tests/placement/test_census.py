"""The census: the published numbers, k3-mini's own, and releases that are damaged."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3d.errors import CheckpointError, NotFound
from k3d.placement.census import take_census
from k3d.placement.release_tensors import Form, expert_tensors, other_tensors, read_text_config

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "banks" / "k3-mini"
REAL = Path(os.environ.get("K3_REAL_CHECKPOINT", ROOT.parent / "shared" / "real"))
CONFIG = "kimi-k3-config.json"


def _copy(folder: Path, *, shards: bool = True) -> Path:
    """A copy of k3-mini whose shards are links: what is changed is written anew."""
    folder.mkdir()
    for path in MINI.iterdir():
        if path.suffix == ".safetensors" and shards:
            (folder / path.name).symlink_to(path)
        elif path.name in ("config.json", "model.safetensors.index.json"):
            shutil.copy(path, folder / path.name)
    return folder


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.skipif(not (REAL / CONFIG).exists(), reason="no copy of the published config")
def test_the_published_release() -> None:
    census = take_census(REAL)
    assert (census.source, census.experts_total, census.tensors) == (
        "config and index", 82_432, 497_220,
    )  # fmt: skip
    stored, served = census.forms
    assert (stored.form, stored.expert_bytes, stored.expert_tensors) == ("mxfp4", 17_547_264, 6)
    assert (served.form, served.expert_bytes, served.expert_tensors) == ("nvfp4", 18_579_480, 12)
    assert served.experts_bytes == 1_531_543_695_360
    assert served.other_bytes == 77_338_674_496
    assert (round(served.experts_bytes / 2**30, 2), round(served.other_bytes / 2**30, 2)) == (
        1426.36, 72.03,
    )  # fmt: skip
    assert {form.provenance for form in census.forms} == {"modelled"}
    assert census.vision is not None
    assert (census.vision.tensors, census.vision.size_bytes) == (168, 894_717_952)
    # 992,508 tensors of the NVFP4 release, vision among them
    assert served.experts_tensors + served.other_tensors + 168 == 992_508


@pytest.mark.skipif(not (REAL / CONFIG).exists(), reason="no copy of the published config")
@pytest.mark.parametrize("damage", ["truncated", "not gzip", "one name less", "another total"])
def test_a_damaged_published_index_is_refused(damage: str, tmp_path: Path) -> None:
    source = next(REAL.glob("*.index.json.gz"))
    path = tmp_path / "model.safetensors.index.json.gz"
    shutil.copy(REAL / CONFIG, tmp_path / "config.json")
    raw = source.read_bytes()
    if damage == "truncated":
        path.write_bytes(raw[: len(raw) // 2])
    elif damage == "not gzip":
        path.write_bytes(b"{}" + raw[2:])
    else:
        document = json.loads(gzip.decompress(raw))
        if damage == "one name less":
            name = "language_model.model.layers.9.block_sparse_moe.experts.77.w2.weight_scale"
            del document["weight_map"][name]
        else:
            document["metadata"]["total_size"] -= 10**12
        path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    sentence = {
        "one name less": "layer 9 expert 77 has no w2.weight_scale",
        "another total": "clai",
    }
    with pytest.raises(CheckpointError, match=sentence.get(damage, "index.json.gz")):
        take_census(tmp_path)


def test_headers_and_config_agree_on_k3_mini() -> None:
    measured, modelled = take_census(MINI), take_census(MINI, headers=False)
    assert (measured.source, modelled.source) == ("headers", "config and index")
    assert measured.served.provenance == "measured"
    for key in ("expert_bytes", "experts_bytes", "other_bytes", "other_tensors"):
        assert getattr(measured.served, key) == getattr(modelled.served, key)
    index = json.loads((MINI / "model.safetensors.index.json").read_text())
    total = measured.served.experts_bytes + measured.served.other_bytes
    assert total == index["metadata"]["total_size"]
    assert measured.tensors == len(index["weight_map"])


def test_a_config_alone_is_counted(tmp_path: Path) -> None:
    shutil.copy(MINI / "config.json", tmp_path / "config.json")
    census = take_census(tmp_path)
    assert (census.source, census.tensors, census.shards) == ("config", None, None)
    assert census.served.expert_bytes == take_census(MINI).served.expert_bytes


def test_both_forms_name_every_tensor_once() -> None:
    config = read_text_config(MINI / "config.json")
    forms: dict[Form, int] = {"nvfp4": 12, "mxfp4": 6}
    for form, each in forms.items():
        assert len(expert_tensors(config, form)) == each
        names = [tensor.name for tensor in other_tensors(config, form)]
        assert len(names) == len(set(names))


def _without_key(folder: Path) -> None:
    _edit(folder / "config.json", lambda d: d["text_config"].pop("routed_expert_hidden_size"))


def _other_width(folder: Path) -> None:
    _edit(folder / "config.json", lambda d: d["text_config"].update(moe_intermediate_size=160))


def _no_experts(folder: Path) -> None:
    _edit(folder / "config.json", lambda d: d["text_config"].update(first_k_dense_replace=13))


def _stray_name(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    shard = "model-00001-of-000014.safetensors"
    _edit(index, lambda d: d["weight_map"].update({"language_model.extra": shard}))


def _escape(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    _edit(index, lambda d: d["weight_map"].update({"language_model.lm_head.weight": "../x"}))


def _empty_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')


def _list_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("[" * 5000)


def _another_shard(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    text = index.read_text()
    index.write_text(text.replace("model-00007-of-000014", "model-00077-of-000014", 1))


def _missing_shard(folder: Path) -> None:
    (folder / "model-00005-of-000014.safetensors").unlink()


def _short_shard(folder: Path) -> None:
    path = folder / "model-00005-of-000014.safetensors"
    raw = path.read_bytes()
    path.unlink()
    path.write_bytes(raw[:-1])


def _swapped_shards(folder: Path) -> None:
    one, two = (folder / f"model-0000{n}-of-000014.safetensors" for n in (2, 3))
    first, second = one.resolve(), two.resolve()
    one.unlink()
    two.unlink()
    one.symlink_to(second)
    two.symlink_to(first)


WRONG = [
    (_without_key, "routed_expert_hidden_size"),
    (_other_width, r"w1.weight' is U8 \[128, 32\]; config.json asks for U8 \[160, 32\]"),
    (_no_experts, "no layer has routed experts"),
    (_stray_name, "language_model.extra"),
    (_escape, "no file name"),
    (_empty_index, "names no tensor"),
    (_list_index, "is not an index"),
    (_another_shard, "names 15 shards of 14, model-00077"),
    (_missing_shard, "1 of 14 shards are missing.*model-00005"),
    (_short_shard, "model-00005-of-000014.safetensors is truncated"),
    (_swapped_shards, "is in model-00002.*the index says model-00003"),
]


@pytest.mark.parametrize(("damage", "sentence"), WRONG, ids=lambda v: getattr(v, "__name__", ""))
def test_a_damaged_release_is_named(damage: Any, sentence: str, tmp_path: Path) -> None:
    folder = _copy(tmp_path / "model")
    damage(folder)
    with pytest.raises(CheckpointError, match=sentence):
        take_census(folder)


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    for model in (tmp_path / "none", tmp_path):
        with pytest.raises(NotFound):
            take_census(model)
    with pytest.raises(NotFound, match="there is no file"):
        take_census(MINI, index=tmp_path / "index.json")
