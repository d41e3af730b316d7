"""Writes a k3-tiny release folder: random weights, every structural feature of Kimi-K3.

    python -m tests.tiny_checkpoint FOLDER [--seed 0] [--layers 13] [--release mxfp4] [--small]

Experts are quantised to MXFP4 and, for the NVFP4 release, recast exactly to power-of-two block
scales (or, with `requantised`, quantised afresh with scales that are no powers of two).
"""

from __future__ import annotations

import argparse
import base64
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, VOCAB = 160, 384
KDA_HEADS, KDA_DIM = 6, 16
HEADS, NOPE, ROPE, VALUE = 6, 16, 16, 16
Q_RANK, KV_RANK = 48, 32
DENSE_WIDTH, LATENT = 320, 96
SHARED = 2
MLA_LAYERS = {9: (4, 8, 9), 13: (4, 8, 12, 13)}  # counted from 1
MAGNITUDES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
SPECIALS = ("[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>")


@dataclass(frozen=True)
class TinyModel:
    """What to write. `small` shrinks what the epsilons meet; `vision` adds tensors to skip."""

    seed: int = 0
    layers: int = 9
    release: Literal["nvfp4", "mxfp4"] = "nvfp4"
    small: bool = False
    experts: int = 16
    top_k: int = 4
    expert_width: int = 64
    requantised: bool = False
    vision: bool = False

    @property
    def mla_layers(self) -> tuple[int, ...]:
        return MLA_LAYERS[self.layers]

    def write(self, folder: Path) -> Path:
        """Write config, shards, index and tokenizer; returns `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        shards = _Weights(self).shards()
        weight_map = {}
        for number, tensors in enumerate(shards, start=1):
            name = f"model-{number:05d}-of-{len(shards):06d}.safetensors"
            save_file(tensors, folder / name, metadata={"format": "pt"})
            weight_map.update(dict.fromkeys(tensors, name))
        size = sum(t.numel() * t.element_size() for shard in shards for t in shard.values())
        _write_json(
            folder / "model.safetensors.index.json",
            {"metadata": {"total_size": size}, "weight_map": weight_map},
        )
        _write_json(folder / "config.json", self.config())
        write_tokenizer(folder)
        return folder

    def config(self) -> dict[str, Any]:
        mla = list(self.mla_layers)
        text = {
            "model_type": "kimi_linear",
            "vocab_size": VOCAB,
            "hidden_size": HIDDEN,
            "intermediate_size": DENSE_WIDTH,
            "num_hidden_layers": self.layers,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "hidden_act": "situ",
            "activation_situ_beta": 4.0,
            "activation_situ_linear_beta": 25.0,
            "rms_norm_eps": 1e-5,
            "moe_intermediate_size": self.expert_width,
            "moe_renormalize": True,
            "moe_router_activation_func": "sigmoid",
            "num_experts": self.experts,
            "num_experts_per_token": self.top_k,
            "num_shared_experts": SHARED,
            "routed_scaling_factor": 1.0,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "use_grouped_topk": True,
            "num_expert_group": 1,
            "topk_group": 1,
            "q_lora_rank": Q_RANK,
            "kv_lora_rank": KV_RANK,
            "qk_nope_head_dim": NOPE,
            "qk_rope_head_dim": ROPE,
            "v_head_dim": VALUE,
            "mla_use_nope": True,
            "mla_use_output_gate": True,
            "num_nextn_predict_layers": 0,
            "attn_res_block_size": 4,
            "latent_moe_use_norm": True,
            "routed_expert_hidden_size": LATENT,
            "tie_word_embeddings": False,
            "linear_attn_config": {
                "full_attn_layers": mla,
                "kda_layers": [n for n in range(1, self.layers + 1) if n not in mla],
                "gate_lower_bound": -5.0,
                "head_dim": KDA_DIM,
                "num_heads": KDA_HEADS,
                "short_conv_kernel_size": 4,
                "use_full_rank_gate": True,
            },
        }
        ids = {"bos_token_id": 256, "eos_token_id": 258, "pad_token_id": 383}
        document: dict[str, Any] = {
            "architectures": ["KimiK3ForConditionalGeneration"],
            "model_type": "kimi_k3",
            "dtype": "bfloat16",
            **ids,
            "tie_word_embeddings": False,
            "text_config": {**text, **ids},
        }
        if self.release == "nvfp4":
            document["quantization_config"] = {
                "quant_method": "modelopt_mixed",
                "quant_algo": "MIXED_PRECISION",
            }
        else:
            document["text_config"]["quantization_config"] = {
                "quant_method": "compressed-tensors",
                "format": "mxfp4-pack-quantized",
            }
        return document


def write_tokenizer(folder: Path) -> None:
    """256 single-byte ranks and the named specials from 256 on, so that chat works."""
    lines = [f"{base64.b64encode(bytes([rank])).decode()} {rank}\n" for rank in range(256)]
    (folder / "tiktoken.model").write_text("".join(lines), encoding="ascii")
    names = {256 + index: name for index, name in enumerate(SPECIALS)} | {383: "[PAD]"}
    added = {str(i): {"content": name, "special": True} for i, name in names.items()}
    _write_json(folder / "tokenizer_config.json", {"added_tokens_decoder": added})


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")


class _Weights:
    """Draws tensors in one fixed order from the seed."""

    def __init__(self, model: TinyModel) -> None:
        self.model = model
        self.random = np.random.default_rng(model.seed)

    def shards(self) -> list[dict[str, Tensor]]:
        """One a layer, then the global tensors, then vision."""
        shards = []
        for layer in range(self.model.layers):
            prefix = f"language_model.model.layers.{layer}."
            shards.append({prefix + name: t for name, t in self._layer(layer).items()})
        shards.append(
            {
                "language_model.model.embed_tokens.weight": _bf16(self._normal(VOCAB, HIDDEN)),
                "language_model.lm_head.weight": self._matrix(VOCAB, HIDDEN),
                "language_model.model.norm.weight": self._norm(HIDDEN),
                "language_model.model.output_attn_res_norm.weight": self._norm(HIDDEN),
                "language_model.model.output_attn_res_proj.weight": self._matrix(
                    1, HIDDEN, gain=3.0
                ),
            }
        )
        if self.model.vision:
            tower = {f"vision_tower.blocks.{i}.wqkv.weight": self._matrix(8, 16) for i in range(3)}
            shards.append(tower | {"mm_projector.proj.0.weight": self._matrix(16, 16)})
        return shards

    def _normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape)

    def _raw(self, out: int, width: int, *, gain: float = 1.6) -> np.ndarray:
        return self._normal(out, width) * (gain / math.sqrt(width))

    def _matrix(self, out: int, width: int, *, gain: float = 1.6) -> Tensor:
        return _bf16(self._raw(out, width, gain=gain))

    def _norm(self, width: int) -> Tensor:
        return _bf16(1 + 0.3 * self._normal(width))

    def _layer(self, layer: int) -> dict[str, Tensor]:
        tensors = {
            "input_layernorm.weight": self._norm(HIDDEN),
            "post_attention_layernorm.weight": self._norm(HIDDEN),
            "self_attention_res_norm.weight": self._norm(HIDDEN),
            "self_attention_res_proj.weight": self._matrix(1, HIDDEN, gain=3.0),
            "mlp_res_norm.weight": self._norm(HIDDEN),
            "mlp_res_proj.weight": self._matrix(1, HIDDEN, gain=3.0),
        }
        attention = self._mla() if layer + 1 in self.model.mla_layers else self._kda()
        tensors |= {f"self_attn.{name}": t for name, t in attention.items()}
        if layer == 0:
            tensors |= {
                f"mlp.{name}": t for name, t in self._mlp(DENSE_WIDTH, 3.0, 12.0, 1.6).items()
            }
        else:
            tensors |= {f"block_sparse_moe.{name}": t for name, t in self._moe().items()}
        return tensors

    def _attention(self, name: str, out: int, width: int, factor: float = 1.0) -> dict[str, Tensor]:
        raw = factor * self._raw(out, width)
        if self.model.release == "mxfp4":
            return {f"{name}.weight": _bf16(raw)}
        codes, scale = fp8_blocks(raw)
        return {f"{name}.weight": codes, f"{name}.weight_scale": scale}

    def _kda(self) -> dict[str, Tensor]:
        channels = KDA_HEADS * KDA_DIM
        little = 2e-3 if self.model.small else 1.0
        tensors: dict[str, Tensor] = {}
        for name, factor in (("q", little), ("k", little), ("v", 1.0), ("g", 1.0)):
            tensors |= self._attention(f"{name}_proj", channels, HIDDEN, factor)
        tensors |= self._attention("f_a_proj", KDA_DIM, HIDDEN)
        tensors |= self._attention("f_b_proj", channels, KDA_DIM)
        tensors |= self._attention("b_proj", KDA_HEADS, HIDDEN)
        tensors |= self._attention("o_proj", HIDDEN, channels)
        for name in "qkv":
            tensors[f"{name}_conv1d.weight"] = _f32(self._raw(channels, 4, gain=1.2)[:, None])
        a_log = np.zeros(KDA_DIM)  # one value a head, padded as the release pads it
        a_log[:KDA_HEADS] = self.random.uniform(-1, 1.2, KDA_HEADS)
        tensors["A_log"] = _f32(a_log)
        tensors["dt_bias"] = _f32(self._normal(channels) - 1)
        tensors["o_norm.weight"] = _f32(1 + 0.3 * self._normal(KDA_DIM))
        return tensors

    def _mla(self) -> dict[str, Tensor]:
        little = 1e-3 if self.model.small else 1.0
        tensors = self._attention("q_a_proj", Q_RANK, HIDDEN, little)
        tensors |= self._attention("q_b_proj", HEADS * (NOPE + ROPE), Q_RANK)
        tensors |= self._attention("kv_a_proj_with_mqa", KV_RANK + ROPE, HIDDEN, little)
        tensors |= self._attention("kv_b_proj", HEADS * (NOPE + VALUE), KV_RANK)
        tensors |= self._attention("g_proj", HEADS * VALUE, HIDDEN)
        tensors |= self._attention("o_proj", HIDDEN, HEADS * VALUE)
        tensors["q_a_layernorm.weight"] = self._norm(Q_RANK)
        tensors["kv_a_layernorm.weight"] = self._norm(KV_RANK)
        return tensors

    def _mlp(self, width: int, gate: float, up: float, down: float) -> dict[str, Tensor]:
        return {
            "gate_proj.weight": self._matrix(width, HIDDEN, gain=gate),
            "up_proj.weight": self._matrix(width, HIDDEN, gain=up),
            "down_proj.weight": self._matrix(HIDDEN, width, gain=down),
        }

    def _moe(self) -> dict[str, Tensor]:
        model = self.model
        width = model.expert_width
        tensors = {
            "gate.weight": self._matrix(model.experts, HIDDEN),
            "gate.e_score_correction_bias": _f32(0.3 * self._normal(model.experts)),
            "routed_expert_down_proj.weight": self._matrix(LATENT, HIDDEN),
            "routed_expert_up_proj.weight": self._matrix(HIDDEN, LATENT),
            "routed_expert_norm.weight": self._norm(LATENT),
        }
        shared = self._mlp(SHARED * width, 3.0, 3.0, 3.0)
        tensors |= {f"shared_experts.{name}": t for name, t in shared.items()}
        little = 2e-3 if model.small else 1.0
        for expert in range(model.experts):
            matrices = {
                "w1": self._raw(width, LATENT, gain=3.0),
                "w3": self._raw(width, LATENT, gain=12.0),
                "w2": little * self._raw(LATENT, width),
            }
            for name, tensor in self._expert(matrices).items():
                tensors[f"experts.{expert}.{name}"] = tensor
        return tensors

    def _expert(self, matrices: dict[str, np.ndarray]) -> dict[str, Tensor]:
        model = self.model
        if model.release == "nvfp4" and model.requantised:
            return {k: t for name, m in matrices.items() for k, t in _requantise(name, m).items()}
        coded = {name: mxfp4_groups(matrix) for name, matrix in matrices.items()}
        if model.release == "mxfp4":
            tensors = {}
            for name, (codes, exponents) in coded.items():
                tensors[f"{name}.weight_packed"] = pack_nibbles(codes)
                tensors[f"{name}.weight_scale"] = torch.from_numpy(
                    (exponents + 127).astype(np.uint8)
                )
            return tensors
        joint = max(int(coded[name][1].max()) for name in ("w1", "w3"))
        largest = {"w1": joint, "w3": joint, "w2": int(coded["w2"][1].max())}
        tensors = {}
        for name, (codes, exponents) in coded.items():
            relative = exponents - largest[name] + 8
            assert relative.min() >= -9, "this seed needs a re-quantised block"
            scales = np.repeat(2.0 ** relative.astype(np.float64), 2, axis=1)
            positive = np.where(codes == 8, 0, codes).astype(np.uint8)
            tensors |= _nvfp4(name, positive, scales, 2.0 ** (largest[name] - 8))
        return tensors


def _nvfp4(name: str, codes: np.ndarray, scales: np.ndarray, scale_2: float) -> dict[str, Tensor]:
    return {
        f"{name}.weight": pack_nibbles(codes),
        f"{name}.weight_scale": torch.from_numpy(scales).to(torch.float8_e4m3fn),
        f"{name}.weight_scale_2": torch.tensor(scale_2, dtype=torch.float32),
        f"{name}.input_scale": torch.tensor(1.0, dtype=torch.float32),
    }


def _requantise(name: str, matrix: np.ndarray) -> dict[str, Tensor]:
    scale_2 = float(np.float32(np.abs(matrix).max() / (6.0 * 448.0)))
    grouped = matrix.reshape(len(matrix), -1, 16)
    wanted = np.abs(grouped).max(-1) / 6.0 / scale_2
    scales = torch.from_numpy(wanted).clamp(2.0**-9, 448.0).to(torch.float8_e4m3fn).double().numpy()
    codes = e2m1_codes(grouped / (scales[..., None] * scale_2)).reshape(matrix.shape)
    return _nvfp4(name, codes, scales, scale_2)


def e2m1_codes(values: np.ndarray) -> np.ndarray:
    """Nearest E2M1 code of each value."""
    distance = np.abs(np.abs(values)[..., None] - MAGNITUDES)
    return (distance.argmin(-1) | np.where(values < 0, 8, 0)).astype(np.uint8)


def mxfp4_groups(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes [out, in] and power-of-two exponents [out, in/32]."""
    grouped = matrix.reshape(len(matrix), -1, 32)
    exponents = np.floor(np.log2(np.abs(grouped).max(-1))).astype(np.int64) - 2
    codes = e2m1_codes(grouped / 2.0 ** exponents[..., None])
    return codes.reshape(matrix.shape), exponents


def pack_nibbles(codes: np.ndarray) -> Tensor:
    """Low nibble = even column."""
    return torch.from_numpy(codes[:, 0::2] | (codes[:, 1::2] << 4))


def fp8_blocks(matrix: np.ndarray) -> tuple[Tensor, Tensor]:
    """E4M3 codes [out, in] and F32 scales [out/128, 1, in/128, 1] of 128 x 128 blocks."""
    out, width = matrix.shape
    scale = np.zeros((-(-out // 128), 1, -(-width // 128), 1), dtype=np.float32)
    spread = np.zeros_like(matrix)
    for row in range(scale.shape[0]):
        for column in range(scale.shape[2]):
            block = np.s_[row * 128 : row * 128 + 128, column * 128 : column * 128 + 128]
            scale[row, 0, column, 0] = np.abs(matrix[block]).max() / 448.0
            spread[block] = scale[row, 0, column, 0]
    codes = torch.from_numpy(matrix / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, torch.from_numpy(scale)


def _bf16(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(torch.bfloat16)


def _f32(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(torch.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, choices=sorted(MLA_LAYERS), default=9)
    parser.add_argument("--release", choices=("nvfp4", "mxfp4"), default="nvfp4")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--requantised", action="store_true")
    parser.add_argument("--vision", action="store_true")
    parser.add_argument("--expert-width", type=int, default=64)
    options = vars(parser.parse_args())
    TinyModel(**{key: value for key, value in options.items() if key != "folder"}).write(
        options["folder"]
    )


if __name__ == "__main__":
    main()
