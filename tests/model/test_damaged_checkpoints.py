"""Damaged and contradictory checkpoints: one sentence that names the culprit, and no model."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3d.engine.offline import OfflineModel
from k3d.errors import ConfigError, ExitCode, K3Error
from tests.model import shard_editing as edit
from tests.tiny_checkpoint import TinyModel

LM = "language_model."
MODEL = f"{LM}model."
LAYER = f"{MODEL}layers."
EXPERT = f"{LAYER}2.block_sparse_moe.experts.11."
Tiny = Callable[[TinyModel], Path]
Damage = Callable[[Path], object]


def first_shard(folder: Path) -> Path:
    return folder / "model-00001-of-000010.safetensors"


def _text(folder: Path, **changes: Any) -> None:
    edit.edit_json(folder / "config.json", lambda config: config["text_config"].update(changes))


def _linear(folder: Path, **changes: Any) -> None:
    edit.edit_json(
        folder / "config.json",
        lambda config: config["text_config"]["linear_attn_config"].update(changes),
    )


def _index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    edit.edit_json(folder / edit.INDEX, lambda index: change(index["weight_map"]))


def _truncate(folder: Path) -> None:
    raw = first_shard(folder).read_bytes()
    first_shard(folder).write_bytes(raw[:-1000])


def _header_length(folder: Path) -> None:
    raw = first_shard(folder).read_bytes()
    first_shard(folder).write_bytes(struct.pack("<Q", 2**63) + raw[8:])


def _header_not_json(folder: Path) -> None:
    header, data = edit.read_shard(first_shard(folder))
    edit.write_shard(first_shard(folder), b"{" + str(header).encode() + b"}", data)


def _tensor_in_two_shards(folder: Path) -> None:
    name = f"{MODEL}norm.weight"
    path = first_shard(folder)
    header, body = edit.read_shard(path)
    entry = {"dtype": "BF16", "shape": [160], "data_offsets": [len(body), len(body) + 320]}
    edit.write_shard(path, header | {name: entry}, body + bytes(320))


def _swap_names(folder: Path) -> None:
    """Two tensors of unlike shape under each other's name."""
    one, other = (f"{LAYER}0.self_attn.{name}" for name in ("dt_bias", "A_log"))

    def swap(header: dict[str, Any]) -> None:
        header[one], header[other] = header[other], header[one]

    edit.edit_header(edit.shard_of(folder, one), swap)


NVFP4: dict[str, tuple[Damage, str]] = {
    "truncated shard": (_truncate, "model-00001-of-000010.safetensors is truncated"),
    "header length of 2^63": (_header_length, "announces a header of 9223372036854775808 bytes"),
    "header is not JSON": (_header_not_json, "model-00001-of-000010.safetensors is not JSON"),
    "shard of zero bytes": (
        lambda f: first_shard(f).write_bytes(b""),
        "model-00001-of-000010.safetensors is 0 bytes",
    ),
    "missing shard": (
        lambda f: first_shard(f).unlink(),
        "model-00001-of-000010.safetensors is missing",
    ),
    "tensor in two shards": (_tensor_in_two_shards, f"{MODEL}norm.weight is in"),
    "swapped names": (_swap_names, f"{LAYER}0.self_attn.A_log"),
    "missing tensor": (
        lambda f: edit.remove_tensor(f, f"{LAYER}5.mlp_res_norm.weight"),
        f"has no tensor {LAYER}5.mlp_res_norm.weight",
    ),
    "missing expert tensor": (
        lambda f: edit.remove_tensor(f, f"{EXPERT}w3.weight_scale"),
        f"has no tensor {EXPERT}w3.weight_scale",
    ),
    "missing global scale": (
        lambda f: edit.remove_tensor(f, f"{EXPERT}w2.weight_scale_2"),
        f"has no tensor {EXPERT}w2.weight_scale_2",
    ),
    "missing attention scale": (
        lambda f: edit.remove_tensor(f, f"{LAYER}3.self_attn.kv_b_proj.weight_scale"),
        f"{LAYER}3.self_attn.kv_b_proj.weight is F8_E4M3",
    ),
    "unknown tensor": (
        lambda f: edit.add_tensor(f, f"{LAYER}0.self_attn.rope.inv_freq", "F32", [2], bytes(8)),
        f"{LAYER}0.self_attn.rope.inv_freq",
    ),
    "tensor of no part of the model": (
        lambda f: edit.add_tensor(f, "optimizer.step", "F32", [2], bytes(8)),
        "optimizer.step belongs to no part",
    ),
    "expert beyond the last": (
        lambda f: edit.add_tensor(
            f, f"{LAYER}2.block_sparse_moe.experts.16.w1.weight_scale_2", "F32", [], bytes(4)
        ),
        "experts.16.w1.weight_scale_2",
    ),
    "wrong dtype of a plain tensor": (
        lambda f: edit.replace_tensor(f, f"{MODEL}norm.weight", "F16", [160], bytes(320)),
        f"{MODEL}norm.weight is F16",
    ),
    "wrong dtype of codes": (
        lambda f: edit.replace_tensor(f, f"{EXPERT}w1.weight", "F8_E4M3", [64, 48], bytes(3072)),
        f"{EXPERT}w1.weight is F8_E4M3",
    ),
    "wrong dtype of a global scale": (
        lambda f: edit.replace_tensor(f, f"{EXPERT}w1.weight_scale_2", "BF16", [], b"\x80\x3f"),
        f"{EXPERT}w1.weight_scale_2 is BF16",
    ),
    "wrong shape": (
        lambda f: edit.replace_tensor(f, f"{MODEL}norm.weight", "BF16", [161], bytes(322)),
        f"{MODEL}norm.weight has shape [161]",
    ),
    "two-dimensional FP8 scales": (
        lambda f: edit.replace_tensor(
            f, f"{LAYER}3.self_attn.o_proj.weight_scale", "F32", [2, 1], bytes(8)
        ),
        f"{LAYER}3.self_attn.o_proj.weight_scale has shape [2, 1]",
    ),
    "NaN block scale of an expert": (
        lambda f: edit.overwrite(f, f"{EXPERT}w3.weight_scale", b"\x7f", at=17),
        f"{EXPERT}w3.weight_scale holds a scale that is not a number",
    ),
    "NaN global scale": (
        lambda f: edit.overwrite(f, f"{EXPERT}w1.weight_scale_2", struct.pack("<f", float("nan"))),
        f"{EXPERT}w1.weight_scale_2 is nan",
    ),
    "infinite global scale of w2": (
        lambda f: edit.overwrite(f, f"{EXPERT}w2.weight_scale_2", struct.pack("<f", float("inf"))),
        f"{EXPERT}w2.weight_scale_2 is inf",
    ),
    "global scale of zero": (
        lambda f: edit.overwrite(f, f"{EXPERT}w1.weight_scale_2", bytes(4)),
        f"{EXPERT}w1.weight_scale_2 is 0.0",
    ),
    "NaN attention scale": (
        lambda f: edit.overwrite(
            f, f"{LAYER}1.self_attn.v_proj.weight_scale", struct.pack("<f", float("nan"))
        ),
        f"{LAYER}1.self_attn.v_proj.weight_scale holds values that are not numbers",
    ),
    "NaN attention code": (
        lambda f: edit.overwrite(f, f"{LAYER}1.self_attn.v_proj.weight", b"\xff", at=99),
        f"{LAYER}1.self_attn.v_proj.weight holds values that are not numbers",
    ),
    "NaN norm": (
        lambda f: edit.overwrite(f, f"{MODEL}norm.weight", b"\xc0\x7f", at=20),
        f"{MODEL}norm.weight holds values that are not numbers",
    ),
    "infinite embedding": (
        lambda f: edit.overwrite(f, f"{MODEL}embed_tokens.weight", b"\x80\x7f", at=20),
        f"{MODEL}embed_tokens.weight holds values that are not numbers",
    ),
    "A_log beyond its heads": (
        lambda f: edit.overwrite(
            f, f"{LAYER}4.self_attn.A_log", struct.pack("<f", 1e-30), at=4 * 15
        ),
        f"{LAYER}4.self_attn.A_log has values beyond its 6 heads",
    ),
    "A_log too short": (
        lambda f: edit.replace_tensor(f, f"{LAYER}4.self_attn.A_log", "F32", [5], bytes(20)),
        f"{LAYER}4.self_attn.A_log has shape [5]",
    ),
    "index names the wrong shard": (
        lambda f: _index(
            f, lambda m: m.update({f"{MODEL}norm.weight": "model-00002-of-000010.safetensors"})
        ),
        f"places tensor {MODEL}norm.weight in model-00002",
    ),
    "index names a tensor that is nowhere": (
        lambda f: _index(
            f, lambda m: m.update({f"{MODEL}ghost": "model-00002-of-000010.safetensors"})
        ),
        f"places tensor {MODEL}ghost in model-00002",
    ),
    "index does not name a tensor": (
        lambda f: _index(f, lambda m: m.pop(f"{MODEL}norm.weight")),
        f"{MODEL}norm.weight",
    ),
    "index leads out of the folder": (
        lambda f: _index(f, lambda m: m.update({f"{MODEL}norm.weight": "../other.safetensors"})),
        "weight_map is not tensor -> shard file",
    ),
    "index names an impossible file": (
        lambda f: _index(f, lambda m: m.update({f"{MODEL}norm.weight": "a\0b"})),
        "weight_map is not tensor -> shard file",
    ),
    "index is not JSON": (
        lambda f: (f / edit.INDEX).write_text("{"),
        "model.safetensors.index.json cannot be read",
    ),
    "index without weight_map": (
        lambda f: (f / edit.INDEX).write_text("{}"),
        "model.safetensors.index.json cannot be read",
    ),
    "no index": (lambda f: (f / edit.INDEX).unlink(), "holds neither"),
    "no config": (lambda f: (f / "config.json").unlink(), "holds no config.json"),
    "config of a wider model": (
        lambda f: _text(f, hidden_size=192),
        "config.json asks for",
    ),
    "config with more experts": (
        lambda f: _text(f, num_experts=17),
        "config.json asks for [17, 160]",
    ),
    "config with fewer layers": (
        lambda f: (
            _text(f, num_hidden_layers=8),
            _linear(f, full_attn_layers=[4, 8]),
        ),
        "unknown to Kimi-K3",
    ),
    "config with other head counts": (
        lambda f: _linear(f, num_heads=3),
        "config.json asks for [48, 160]",
    ),
    "layer lists counted from 0": (
        lambda f: _linear(f, full_attn_layers=[3, 7, 8], kda_layers=[0, 1, 2, 4, 5, 6]),
        "do not cover layers 1..9",
    ),
    "layer lists against the tensors": (
        lambda f: _linear(f, full_attn_layers=[3, 8, 9], kda_layers=[1, 2, 4, 5, 6, 7]),
        "layer 2 is MLA; its tensors disagree",
    ),
    "every fourth layer and no more": (
        lambda f: _linear(f, full_attn_layers=[4, 8], kda_layers=[1, 2, 3, 5, 6, 7, 9]),
        "layer 8 is KDA; its tensors disagree",
    ),
}

MXFP4: dict[str, tuple[Damage, str]] = {
    "NaN block scale": (
        lambda f: edit.overwrite(f, f"{EXPERT}w1.weight_scale", b"\xff", at=5),
        f"{EXPERT}w1.weight_scale holds a scale that is not a number",
    ),
    "NaN block scale of w2": (
        lambda f: edit.overwrite(f, f"{EXPERT}w2.weight_scale", b"\xff", at=5),
        f"{EXPERT}w2.weight_scale",
    ),
    "block scale beyond float32": (
        lambda f: edit.overwrite(f, f"{EXPERT}w2.weight_scale", b"\xfe", at=5),
        f"{EXPERT}w2.weight_scale",
    ),
    "wrong dtype of w2's scales": (
        lambda f: edit.replace_tensor(
            f, f"{EXPERT}w2.weight_scale", "BF16", [96, 2], b"\xc0\x7f" * 192
        ),
        f"{EXPERT}w2.weight_scale is BF16",
    ),
    "scales of groups of 16": (
        lambda f: edit.replace_tensor(f, f"{EXPERT}w2.weight_scale", "U8", [96, 4], bytes(384)),
        f"{EXPERT}w2.weight_scale has shape [96, 4]",
    ),
    "one expert in the other format": (
        lambda f: edit.replace_tensor(
            f, f"{EXPERT}w2.weight_packed", "F8_E4M3", [96, 32], bytes(3072)
        ),
        f"{EXPERT}w2.weight_packed is F8_E4M3",
    ),
    "missing codes": (
        lambda f: edit.remove_tensor(f, f"{EXPERT}w2.weight_packed"),
        f"has no tensor {EXPERT}w2.weight_packed",
    ),
    "missing scales of w2": (
        lambda f: edit.remove_tensor(f, f"{EXPERT}w2.weight_scale"),
        f"has no tensor {EXPERT}w2.weight_scale",
    ),
}


def check(source: Path, folder: Path, damage: Damage, says: str) -> None:
    edit.copy_of(source, folder)
    damage(folder)
    with pytest.raises(K3Error) as caught:
        OfflineModel(folder, "fp32", 4)
    error = caught.value
    assert says in error.message
    assert "\n" not in str(error)
    assert error.code == (ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED)


@pytest.mark.parametrize("kind", NVFP4)
def test_damaged_nvfp4(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    check(tiny(TinyModel()), tmp_path / "damaged", *NVFP4[kind])


@pytest.mark.parametrize("kind", MXFP4)
def test_damaged_mxfp4(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    check(tiny(TinyModel(release="mxfp4")), tmp_path / "damaged", *MXFP4[kind])


def test_config_of_a_longer_model(tiny: Tiny, tmp_path: Path) -> None:
    longer = (tiny(TinyModel(layers=13)) / "config.json").read_bytes()
    check(
        tiny(TinyModel()),
        tmp_path / "damaged",
        lambda f: (f / "config.json").write_bytes(longer),
        "tensors disagree",
    )


def test_the_undamaged_copy_loads(tiny: Tiny, tmp_path: Path) -> None:
    """Damage tools leave a checkpoint valid when what they do is undone."""
    folder = edit.copy_of(tiny(TinyModel()), tmp_path / "copy")
    header, body = edit.read_shard(edit.shard_of(folder, f"{MODEL}norm.weight"))
    begin, end = header[f"{MODEL}norm.weight"]["data_offsets"]
    edit.replace_tensor(folder, f"{MODEL}norm.weight", "BF16", [160], body[begin:end])
    OfflineModel(folder, "fp32", 4)
