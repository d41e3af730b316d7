"""Shape of a Kimi-K3 text model, read from and written to a release `config.json`.

Nothing has a default: a K3 whose config lacks one of these keys is another model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class K3Config:
    """Widths and constants of the text model; layers count from 0 here, from 1 in the file."""

    vocab: int
    hidden: int
    layers: int
    dense_width: int
    heads: int
    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    v_dim: int
    kda_heads: int
    kda_dim: int
    conv_taps: int
    gate_lower_bound: float
    mla_layers: tuple[int, ...]
    block: int
    dense_layers: int
    experts: int
    top_k: int
    shared: int
    latent: int
    expert_width: int
    scaling: float
    gate_beta: float
    up_beta: float
    eps: float
    bos: int
    eos: int
    pad: int
    max_positions: int

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """0-based numbers of the layers that have experts."""
        return tuple(range(self.dense_layers, self.layers))

    @staticmethod
    def read(path: Path) -> K3Config:
        """Parse `config.json` at `path`; a missing key raises KeyError with its name."""
        top = json.loads(path.read_text())
        text = top["text_config"]
        kda = text["linear_attn_config"]
        return K3Config(
            vocab=text["vocab_size"],
            hidden=text["hidden_size"],
            layers=text["num_hidden_layers"],
            dense_width=text["intermediate_size"],
            heads=text["num_attention_heads"],
            q_rank=text["q_lora_rank"],
            kv_rank=text["kv_lora_rank"],
            nope=text["qk_nope_head_dim"],
            rope=text["qk_rope_head_dim"],
            v_dim=text["v_head_dim"],
            kda_heads=kda["num_heads"],
            kda_dim=kda["head_dim"],
            conv_taps=kda["short_conv_kernel_size"],
            gate_lower_bound=kda["gate_lower_bound"],
            mla_layers=tuple(layer - 1 for layer in kda["full_attn_layers"]),
            block=text["attn_res_block_size"],
            dense_layers=text["first_k_dense_replace"],
            experts=text["num_experts"],
            top_k=text["num_experts_per_token"],
            shared=text["num_shared_experts"],
            latent=text["routed_expert_hidden_size"],
            expert_width=text["moe_intermediate_size"],
            scaling=text["routed_scaling_factor"],
            gate_beta=text["activation_situ_beta"],
            up_beta=text["activation_situ_linear_beta"],
            eps=text["rms_norm_eps"],
            bos=top["bos_token_id"],
            eos=top["eos_token_id"],
            pad=top["pad_token_id"],
            max_positions=text.get("max_position_embeddings", 0),
        )

    def release_json(self) -> dict[str, Any]:
        """The NVFP4 release's `config.json` of this shape."""
        kda = [layer for layer in range(self.layers) if layer not in self.mla_layers]
        return {
            "architectures": ["KimiK3ForConditionalGeneration"],
            "model_type": "kimi_k3",
            "dtype": "bfloat16",
            "bos_token_id": self.bos,
            "eos_token_id": self.eos,
            "pad_token_id": self.pad,
            "tie_word_embeddings": False,
            "text_config": {
                "model_type": "kimi_linear",
                "vocab_size": self.vocab,
                "hidden_size": self.hidden,
                "intermediate_size": self.dense_width,
                "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.heads,
                "hidden_act": "situ",
                "activation_situ_beta": self.gate_beta,
                "activation_situ_linear_beta": self.up_beta,
                "rms_norm_eps": self.eps,
                "max_position_embeddings": self.max_positions,
                "initializer_range": 0.02,
                "moe_intermediate_size": self.expert_width,
                "moe_renormalize": True,
                "moe_router_activation_func": "sigmoid",
                "num_experts": self.experts,
                "num_experts_per_token": self.top_k,
                "num_shared_experts": self.shared,
                "routed_scaling_factor": self.scaling,
                "first_k_dense_replace": self.dense_layers,
                "moe_layer_freq": 1,
                "use_grouped_topk": True,
                "num_expert_group": 1,
                "topk_group": 1,
                "topk_method": "noaux_tc",
                "q_lora_rank": self.q_rank,
                "kv_lora_rank": self.kv_rank,
                "qk_nope_head_dim": self.nope,
                "qk_rope_head_dim": self.rope,
                "v_head_dim": self.v_dim,
                "mla_use_nope": True,
                "mla_use_output_gate": True,
                "num_nextn_predict_layers": 0,
                "attn_res_block_size": self.block,
                "latent_moe_use_norm": True,
                "routed_expert_hidden_size": self.latent,
                "tie_word_embeddings": False,
                "pad_token_id": self.pad,
                "bos_token_id": self.bos,
                "eos_token_id": self.eos,
                "linear_attn_config": {
                    "full_attn_layers": [layer + 1 for layer in self.mla_layers],
                    "kda_layers": [layer + 1 for layer in kda],
                    "gate_lower_bound": self.gate_lower_bound,
                    "head_dim": self.kda_dim,
                    "num_heads": self.kda_heads,
                    "short_conv_kernel_size": self.conv_taps,
                    "use_full_rank_gate": True,
                },
            },
            "quantization_config": {
                "quant_method": "modelopt_mixed",
                "quant_algo": "MIXED_PRECISION",
            },
        }


RANKS = 3840
K3_MINI = K3Config(
    vocab=RANKS + 256, hidden=192, layers=13, dense_width=384, heads=6, q_rank=96, kv_rank=48,
    nope=32, rope=16, v_dim=32, kda_heads=6, kda_dim=32, conv_taps=4, gate_lower_bound=-5.0,
    mla_layers=(3, 7, 11, 12), block=4, dense_layers=1, experts=64, top_k=4, shared=2, latent=64,
    expert_width=128, scaling=1.0, gate_beta=4.0, up_beta=25.0, eps=1e-5,
    bos=RANKS, eos=RANKS + 2, pad=RANKS + 255, max_positions=2048,
)  # fmt: skip
TEST_SHAPE = replace(
    K3_MINI, vocab=512, hidden=32, layers=5, dense_width=64, heads=2, q_rank=16, kv_rank=16,
    nope=16, rope=16, v_dim=16, kda_heads=2, kda_dim=16, mla_layers=(3, 4), experts=8, top_k=2,
    latent=16, expert_width=32, bos=256, eos=258, pad=511,
)  # fmt: skip
