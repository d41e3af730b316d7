"""Kimi-K3 in plain float64, written from the specification: the judge of the engine.

Whole prompts only, expanded attention, the textbook KDA recurrence, one expert a loop turn. It
shares nothing with the code it judges: shards are read by the safetensors library, formats are
decoded here. Each step is a method so that a test can replace one by a known mistake and see that
the comparison notices.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

Array = NDArray[np.float64]

E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
E2M1 = np.concatenate([E2M1, -E2M1])

_DECODED: dict[tuple[Path, object], dict[str, NDArray[np.float64]]] = {}
"""Decoded weights, kept per folder and way of decoding: many oracles read one checkpoint."""


def logistic(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def unpack(packed: NDArray[np.uint8]) -> Array:
    """u8 [out, n] -> codes' values [out, 2n], low nibble first."""
    values = np.empty((packed.shape[0], 2 * packed.shape[1]))
    values[:, 0::2] = E2M1[packed & 15]
    values[:, 1::2] = E2M1[packed >> 4]
    return values


class Oracle:
    """One checkpoint folder; `logits` is row t = logits after ids[0..t]."""

    latent_eps = 1e-6
    l2_eps = 1e-6

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.text: dict[str, Any] = config["text_config"]
        self.linear: dict[str, Any] = self.text["linear_attn_config"]
        self.eps: float = self.text["rms_norm_eps"]
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        self._files = {name: folder / shard for name, shard in index["weight_map"].items()}
        self._open = lru_cache(None)(lambda path: safe_open(str(path), framework="pt"))
        self._cache = _DECODED.setdefault((folder, type(self)._decode), {})
        self.routed_sums: list[Array] = []
        """What each MoE layer of the last run gave its norm, [rows, latent]."""

    # Reading

    def stored(self, name: str) -> torch.Tensor:
        full = f"language_model.{name}"
        return self._open(self._files[full]).get_tensor(full)

    def has(self, name: str) -> bool:
        return f"language_model.{name}" in self._files

    def weight(self, name: str) -> Array:
        """`name` without its suffix; FP8 blocks and FP4 groups are decoded."""
        if name not in self._cache:
            self._cache[name] = self._decode(name)
        return self._cache[name]

    def _decode(self, name: str) -> Array:
        if self.has(f"{name}.weight_packed"):
            codes = unpack(self.stored(f"{name}.weight_packed").numpy())
            exponents = self.stored(f"{name}.weight_scale").numpy().astype(np.float64) - 127
            return codes * np.repeat(2.0**exponents, 32, axis=1)
        if self.has(f"{name}.weight_scale_2"):
            codes = unpack(self.stored(f"{name}.weight").numpy())
            scales = self.stored(f"{name}.weight_scale").double().numpy()
            return (
                codes * np.repeat(scales, 16, axis=1) * float(self.stored(f"{name}.weight_scale_2"))
            )
        suffix = "" if self.has(name) else ".weight"
        matrix = self.stored(name + suffix).double().numpy()
        if self.has(f"{name}.weight_scale"):
            scale = self.stored(f"{name}.weight_scale").double().numpy()[:, 0, :, 0]
            rows, columns = np.indices(matrix.shape)
            matrix = matrix * scale[rows // 128, columns // 128]
        return matrix

    # The pass

    def logits(self, ids: list[int]) -> Array:
        text = self.text
        self.routed_sums = []
        residual = self.weight("model.embed_tokens")[np.array(ids)]
        bank: list[Array] = []
        mla = self.mla_layers()
        for layer in range(text["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            h = residual
            if bank:
                h = self.mix([*bank, residual], f"{name}.self_attention_res")
            opens = self.opens_block(layer)
            if opens:
                bank.append(residual)
            x = self.rms(h, self.weight(f"{name}.input_layernorm"), self.eps)
            attend = self.mla if layer in mla else self.kda
            attended = attend(x, f"{name}.self_attn")
            residual = self.after_attention(residual, attended, opens)
            h = self.mix([*bank, residual], f"{name}.mlp_res")
            x = self.rms(h, self.weight(f"{name}.post_attention_layernorm"), self.eps)
            if layer < text["first_k_dense_replace"]:
                residual = residual + self.mlp(x, f"{name}.mlp")
            else:
                residual = residual + self.moe(x, f"{name}.block_sparse_moe")
        h = self.last_mix([*bank, residual])
        return self.rms(h, self.weight("model.norm"), self.eps) @ self.weight("lm_head").T

    def mla_layers(self) -> set[int]:
        return {n - 1 for n in self.linear["full_attn_layers"]}

    def opens_block(self, layer: int) -> bool:
        return layer % self.text["attn_res_block_size"] == 0

    def after_attention(self, residual: Array, attended: Array, opens: bool) -> Array:
        return attended if opens else residual + attended

    def last_mix(self, sources: list[Array]) -> Array:
        return self.mix(sources, "model.output_attn_res")

    def rms(self, x: Array, weight: Array, eps: float) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight

    def mix(self, sources: list[Array], name: str) -> Array:
        query = self.weight(f"{name}_norm") * self.weight(f"{name}_proj")[0]
        values = np.stack(sources, axis=1)  # [rows, n, hidden]
        keys = values / np.sqrt((values * values).mean(-1, keepdims=True) + self.eps)
        shares = softmax(keys @ query)
        return (shares[..., None] * self.mixed_values(values, keys)).sum(1)

    def mixed_values(self, values: Array, keys: Array) -> Array:
        return values

    # Kimi Delta Attention

    def kda(self, x: Array, name: str) -> Array:
        heads, dim = self.linear["num_heads"], self.linear["head_dim"]
        rows = len(x)

        def heads_of(flat: Array) -> Array:
            return flat.reshape(rows, heads, dim)

        q, k, v = (
            heads_of(self.conv(x @ self.weight(f"{name}.{s}_proj").T, f"{name}.{s}_conv1d"))
            for s in "qkv"
        )
        q, k = self.scaled_query(self.l2(q)), self.l2(k)
        z = heads_of(x @ self.weight(f"{name}.f_a_proj").T @ self.weight(f"{name}.f_b_proj").T)
        g = self.gate(z + self.weight(f"{name}.dt_bias").reshape(heads, dim), self.a_log(name))
        beta = logistic(x @ self.weight(f"{name}.b_proj").T)
        out = np.zeros((rows, heads, dim))
        state = np.zeros((heads, dim, dim))
        for t in range(rows):
            before = state
            state = state * np.exp(g[t])[..., None]
            seen = self.predicting_state(before, state)
            delta = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", seen, k[t]))
            state = state + k[t][..., None] * delta[:, None]
            out[t] = np.einsum("hkv,hk->hv", state, q[t])
        output_gate = heads_of(x @ self.weight(f"{name}.g_proj").T)
        normed = self.gated_norm(out, self.weight(f"{name}.o_norm"), output_gate)
        return normed.reshape(rows, -1) @ self.weight(f"{name}.o_proj").T

    def conv(self, u: Array, name: str) -> Array:
        taps = self.taps(self.weight(name)[:, 0])  # [channels, 4]
        padded = np.concatenate([np.zeros((3, u.shape[1])), u])
        total = sum(padded[j : j + len(u)] * taps[:, j] for j in range(4))
        return total * logistic(np.asarray(total))

    def taps(self, taps: Array) -> Array:
        return taps

    def l2(self, x: Array) -> Array:
        return x / np.sqrt((x * x).sum(-1, keepdims=True) + self.l2_eps)

    def scaled_query(self, q: Array) -> Array:
        return q / np.sqrt(q.shape[-1])

    def a_log(self, name: str) -> Array:
        """[heads, 1]"""
        return self.weight(f"{name}.A_log")[: self.linear["num_heads"], None]

    def gate(self, z: Array, a_log: Array) -> Array:
        return self.linear["gate_lower_bound"] * logistic(np.exp(a_log) * z)

    def predicting_state(self, before: Array, decayed: Array) -> Array:
        return decayed

    def gated_norm(self, out: Array, weight: Array, gate: Array) -> Array:
        return self.rms(out, weight, self.eps) * logistic(gate)

    # Multi-head latent attention, expanded

    def mla(self, x: Array, name: str) -> Array:
        text = self.text
        heads, rank = text["num_attention_heads"], text["kv_lora_rank"]
        nope, rope, value = (
            text["qk_nope_head_dim"],
            text["qk_rope_head_dim"],
            text["v_head_dim"],
        )
        rows = len(x)
        low = self.rms(
            x @ self.weight(f"{name}.q_a_proj").T,
            self.weight(f"{name}.q_a_layernorm"),
            self.latent_eps,
        )
        query = (low @ self.weight(f"{name}.q_b_proj").T).reshape(rows, heads, nope + rope)
        latent = x @ self.weight(f"{name}.kv_a_proj_with_mqa").T
        shared = latent[:, rank:]
        latent = self.rms(latent[:, :rank], self.weight(f"{name}.kv_a_layernorm"), self.latent_eps)
        up = (latent @ self.weight(f"{name}.kv_b_proj").T).reshape(rows, heads, nope + value)
        keys = np.concatenate(
            [up[..., :nope], np.broadcast_to(shared[:, None], (rows, heads, rope))], axis=-1
        )
        scores = self.scores(query, keys, nope)
        scores = np.where(np.tril(np.ones((rows, rows), dtype=bool)), scores, -np.inf)
        context = np.einsum("hqk,khv->qhv", softmax(scores), up[..., nope:])
        gate = logistic(x @ self.weight(f"{name}.g_proj").T)
        return (context.reshape(rows, -1) * gate) @ self.weight(f"{name}.o_proj").T

    def scores(self, query: Array, keys: Array, nope: int) -> Array:
        return np.einsum("qhd,khd->hqk", query, keys) / np.sqrt(query.shape[-1])

    # Feed-forward

    def situ(self, gate: Array, up: Array) -> Array:
        beta, linear_beta = (
            self.text["activation_situ_beta"],
            self.text["activation_situ_linear_beta"],
        )
        capped = beta * np.tanh(gate / beta) * logistic(gate)
        return capped * linear_beta * np.tanh(up / linear_beta)

    def mlp(self, x: Array, name: str) -> Array:
        gate = x @ self.weight(f"{name}.gate_proj").T
        up = x @ self.weight(f"{name}.up_proj").T
        return self.situ(gate, up) @ self.weight(f"{name}.down_proj").T

    def moe(self, x: Array, name: str) -> Array:
        latent = x @ self.weight(f"{name}.routed_expert_down_proj").T
        chosen, shares = self.route(
            x @ self.weight(f"{name}.gate").T, self.weight(f"{name}.gate.e_score_correction_bias")
        )
        total = np.zeros_like(latent)
        for expert in np.unique(chosen):
            rows, places = np.nonzero(chosen == expert)
            total[rows] += shares[rows, places][:, None] * self.expert(latent[rows], name, expert)
        self.routed_sums.append(total)
        normed = self.routed_norm(total, self.weight(f"{name}.routed_expert_norm"))
        routed = normed @ self.weight(f"{name}.routed_expert_up_proj").T
        return routed + self.mlp(self.shared_input(x, latent), f"{name}.shared_experts")

    def expert(self, x: Array, name: str, expert: int) -> Array:
        w1, w3, w2 = (self.weight(f"{name}.experts.{expert}.{w}") for w in ("w1", "w3", "w2"))
        return self.situ(x @ w1.T, x @ w3.T) @ w2.T

    def route(self, logits: Array, bias: Array) -> tuple[NDArray[np.int64], Array]:
        scores = logistic(logits)
        chosen = np.argsort(-(scores + bias), axis=-1, kind="stable")
        chosen = chosen[:, : self.text["num_experts_per_token"]]
        return chosen, self.shares(scores, bias, chosen)

    def shares(self, scores: Array, bias: Array, chosen: NDArray[np.int64]) -> Array:
        picked = np.take_along_axis(scores, chosen, axis=-1)
        picked = picked / (picked.sum(-1, keepdims=True) + 1e-20)
        return picked * self.text["routed_scaling_factor"]

    def routed_norm(self, total: Array, weight: Array) -> Array:
        return self.rms(total, weight, self.eps)

    def shared_input(self, x: Array, latent: Array) -> Array:
        return x


def relative_error(found: Array, wanted: Array) -> float:
    """L2 norm of the difference over that of what is wanted."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
