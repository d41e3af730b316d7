"""Writes small drafters of every published layout: random weights, the published tensor names.

They draft for the k3-tiny checkpoint of 9 layers (tests.tiny_checkpoint). Names and shapes are
spelled out here from the published lists, not taken from the reader under test.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.tiny_checkpoint import HIDDEN, VOCAB

Document = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]

LAYERS, INNER, RANK = 2, 96, 24
HEADS, KV_HEADS, DIM = 6, 2, 16
MLA_HEADS, Q_RANK, KV_RANK, NOPE, ROPE, VALUE = 4, 40, 32, 12, 8, 10
MASK = 380
DRAFT_VOCAB = 128
TEMPERATURES = [1.3, 1.1, 0.9, 1.0, 1.7, 2.0, 0.8]
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64}


def radixark() -> Document:
    """As published: keys of drafting in dflash_config, no stream named."""
    return {
        "architectures": ["DSparkDraftModel"],
        "attention_bias": False,
        "block_size": 7,
        "dflash_config": {
            "attention_mode": "gqa",
            "confidence_head_with_markov": True,
            "enable_confidence_head": True,
            "markov_head_type": "vanilla",
            "markov_rank": RANK,
            "mask_token_id": MASK,
            "target_layer_ids": [1, 4, 8],
        },
        "head_dim": DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "layer_types": ["full_attention"] * LAYERS,
        "model_type": "qwen3",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "num_target_layers": 9,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {**YARN, "rope_theta": 10000.0},
        "sliding_window": None,
        "vocab_size": VOCAB,
    }


def own() -> Document:
    """As k3-mini's own drafter."""
    return {
        "architectures": ["DSparkDraftModel"],
        "layout": "specforge",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "intermediate_size": INNER,
        "rms_norm_eps": 1e-2,
        "rope_theta": 500.0,
        "rope_scaling": None,
        "vocab_size": VOCAB,
        "block_size": 7,
        "mask_token_id": MASK,
        "target_layer_ids": [0, 3, 7],
        "tap_stream": "materialized",
        "markov_rank": RANK,
        "causal": False,
        "confidence_temperatures": TEMPERATURES,
    }


def inferact() -> Document:
    return {
        "architectures": ["K3DSparkModel"],
        "model_type": "k3_dspark",
        "block_size": 7,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "kv_lora_rank": KV_RANK,
        "markov_head_type": "vanilla",
        "markov_rank": RANK,
        "mask_token_id": MASK,
        "mla_use_nope": False,
        "mla_use_output_gate": False,
        "num_attention_heads": MLA_HEADS,
        "num_hidden_layers": LAYERS,
        "num_target_layers": 3,
        "q_lora_rank": Q_RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 50000.0,
            "factor": 32.0,
            "original_max_position_embeddings": 128,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        "target_hidden_size": HIDDEN,
        "target_layer_ids": [2, 4, 6],
        "target_num_hidden_layers": 9,
        "v_head_dim": VALUE,
        "vocab_size": VOCAB,
    }


def speculators() -> Document:
    """RedHatAI's, with a full and a sliding layer, and the two keys its user has to add."""
    return {
        "architectures": ["DSparkDraftModel"],
        "aux_hidden_state_layer_ids": [3, 5, 9],
        "block_size": 8,
        "confidence_head_with_markov": True,
        "draft_vocab_size": VOCAB,
        "enable_confidence_head": True,
        "markov_head_type": "vanilla",
        "markov_rank": RANK,
        "mask_token_id": MASK,
        "sample_from_anchor": True,
        "sliding_window_non_causal": False,
        "speculators_config": {
            "algorithm": "dspark",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 8}],
        },
        "speculators_model_type": "dspark",
        "tap_id_base": 1,
        "tap_stream": "raw_prefix",
        "target_hidden_size": None,
        "transformer_layer_config": {
            "attention_bias": False,
            "head_dim": DIM,
            "hidden_act": "silu",
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "layer_types": ["full_attention", "sliding_attention"],
            "model_type": "qwen3",
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KV_HEADS,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
            "sliding_window": 5,
            "vocab_size": VOCAB,
        },
    }


def eagle30() -> Document:
    """3.0 with a reduced head."""
    return {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "draft_vocab_size": DRAFT_VOCAB,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 5, 8]},
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "kv_lora_rank": KV_RANK,
        "num_attention_heads": MLA_HEADS,
        "num_hidden_layers": 1,
        "num_speculative_tokens": 4,
        "q_lora_rank": Q_RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 50000.0,
        "v_head_dim": VALUE,
        "vocab_size": VOCAB,
    }


def eagle31() -> Document:
    return {
        **eagle30(),
        "draft_vocab_size": VOCAB,
        "fc_norm": True,
        "norm_output": True,
        "rope_scaling": {
            "type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }


DOCUMENTS: dict[str, Callable[[], Document]] = {
    "radixark": radixark,
    "own": own,
    "inferact": inferact,
    "speculators": speculators,
    "eagle30": eagle30,
    "eagle31": eagle31,
}
BLOCKS = ("radixark", "own", "inferact", "speculators")


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
