"""Writes small drafters of every published layout: random weights, the published tensor names.

They draft for the k3-tiny checkpoint of 9 layers (tests.tiny_checkpoint). Names and shapes are
spelled out here from the published lists, not taken from the reader under test.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.model.drafter.tiny_configs import (
    DIM,
    DOCUMENTS,
    DRAFT_VOCAB,
    HEADS,
    INNER,
    KV_HEADS,
    KV_RANK,
    LAYERS,
    MLA_HEADS,
    NOPE,
    Q_RANK,
    RANK,
    ROPE,
    VALUE,
    Document,
)
from tests.tiny_checkpoint import HIDDEN, VOCAB

Shapes = dict[str, tuple[int, ...]]


def shapes(kind: str) -> Shapes:
    """Published names and shapes, at the tiny sizes."""
    if kind.startswith("eagle"):
        return _eagle_shapes(kind)
    names = ("fc", "hidden_norm", "norm")
    if kind == "inferact":
        names = ("context_proj", "context_norm", "final_norm")
    attention = _mla_shapes(HIDDEN) if kind == "inferact" else _gqa_shapes()
    found: Shapes = {
        f"{names[0]}.weight": (HIDDEN, 3 * HIDDEN),
        f"{names[1]}.weight": (HIDDEN,),
        f"{names[2]}.weight": (HIDDEN,),
        "markov_head.markov_w1.weight": (VOCAB, RANK),
        "markov_head.markov_w2.weight": (VOCAB, RANK),
        "confidence_head.proj.weight": (1, HIDDEN + RANK),
        "confidence_head.proj.bias": (1,),
    }
    for layer in range(LAYERS):
        found |= _layer_shapes(layer, attention)
    if kind in ("inferact", "speculators"):
        found["embed_tokens.weight"] = (VOCAB, HIDDEN)
    if kind == "speculators":
        found["lm_head.weight"] = (VOCAB, HIDDEN)
    return found


def _eagle_shapes(kind: str) -> Shapes:
    found: Shapes = {
        "embed_tokens.weight": (VOCAB, HIDDEN),
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "layers.0.hidden_norm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB if kind == "eagle31" else DRAFT_VOCAB, HIDDEN),
        **_layer_shapes(0, _mla_shapes(2 * HIDDEN)),
    }
    if kind == "eagle31":
        found |= {f"fc_norm.{tap}.weight": (HIDDEN,) for tap in range(3)}
    return found


def _layer_shapes(layer: int, attention: Shapes) -> Shapes:
    prefix = f"layers.{layer}."
    return {
        f"{prefix}input_layernorm.weight": (HIDDEN,),
        f"{prefix}post_attention_layernorm.weight": (HIDDEN,),
        **{f"{prefix}self_attn.{name}.weight": shape for name, shape in attention.items()},
        f"{prefix}mlp.gate_proj.weight": (INNER, HIDDEN),
        f"{prefix}mlp.up_proj.weight": (INNER, HIDDEN),
        f"{prefix}mlp.down_proj.weight": (HIDDEN, INNER),
    }


def _gqa_shapes() -> Shapes:
    return {
        "q_proj": (HEADS * DIM, HIDDEN),
        "k_proj": (KV_HEADS * DIM, HIDDEN),
        "v_proj": (KV_HEADS * DIM, HIDDEN),
        "o_proj": (HIDDEN, HEADS * DIM),
        "q_norm": (DIM,),
        "k_norm": (DIM,),
    }


def _mla_shapes(width: int) -> Shapes:
    return {
        "q_a_proj": (Q_RANK, width),
        "q_a_layernorm": (Q_RANK,),
        "q_b_proj": (MLA_HEADS * (NOPE + ROPE), Q_RANK),
        "kv_a_proj_with_mqa": (KV_RANK + ROPE, width),
        "kv_a_layernorm": (KV_RANK,),
        "kv_b_proj": (MLA_HEADS * (NOPE + VALUE), KV_RANK),
        "o_proj": (HIDDEN, MLA_HEADS * VALUE),
    }


def tensors(kind: str, seed: int = 0) -> dict[str, Tensor]:
    """bf16 weights; norms near 1, matrices that keep a row's size, lively confidence."""
    found = {}
    for name, shape in shapes(kind).items():
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        values = torch.randn(shape, generator=generator)
        if "norm" in name:
            values = 1 + 0.3 * values
        elif len(shape) == 2:
            values = values * (1.5 / shape[1] ** 0.5)
        found[name] = values.bfloat16()
    if kind == "eagle30":
        found["d2t"] = 3 * torch.arange(DRAFT_VOCAB) - torch.arange(DRAFT_VOCAB)
        found["t2d"] = torch.arange(VOCAB) % 3 == 0
    return found


def write(
    folder: Path,
    kind: str,
    document: Document | None = None,
    weights: dict[str, Tensor] | None = None,
) -> Path:
    """Write a drafter's folder, with another config or other tensors if given."""
    folder.mkdir(parents=True, exist_ok=True)
    document = DOCUMENTS[kind]() if document is None else document
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    save_file(tensors(kind) if weights is None else weights, folder / "model.safetensors")
    return folder
