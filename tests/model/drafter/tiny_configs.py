"""config.json of small drafters, with the keys that each publisher writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.tiny_checkpoint import HIDDEN, VOCAB

Document = dict[str, Any]

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
