"""What the published drafters compute, one position and one head at a time, in float64 numpy.

Written from descriptions of the drafters, for reading rather than speed; it shares nothing with
k3d.model.drafter and reads config.json and tensors by itself.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file

Array = NDArray[np.float64]
Drafts = tuple[list[int], list[float]]


class DrafterOracle:
    """One drafter's folder beside the model's embedding and head [vocab, hidden].

    `draft` is given the taps of positions 0..p-1 and the tokens that follow them, and returns
    (drafts, confidences). Rows before `start` do not exist for it.
    """

    def __init__(self, folder: Path, embed: Array, head: Array) -> None:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        stored = load_file(folder / "model.safetensors")
        self.weights = {name: tensor.double().numpy() for name, tensor in stored.items()}
        for nested in ("dflash_config", "transformer_layer_config", "eagle_config"):
            config = {**config, **config.get(nested, {})}
        self.config = config
        self.embed = self.weights.get("embed_tokens.weight", embed)
        if config["architectures"] == ["K3DSparkModel"]:
            self.embed = embed
        self.head = self.weights.get("lm_head.weight", head)
        self.eps: float = config["rms_norm_eps"]
        self.latent = "kv_lora_rank" in config

    def w(self, name: str) -> Array:
        return self.weights[f"{name}.weight"]

    def rms(self, x: Array, weight: Array) -> Array:
        return x / math.sqrt(float((x * x).mean()) + self.eps) * weight

    # Positions

    def rope_settings(self) -> dict[str, Any]:
        parameters = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        return {"rope_theta": self.config.get("rope_theta"), **parameters}

    def is_yarn(self) -> bool:
        settings = self.rope_settings()
        return settings.get("rope_type", settings.get("type", "default")) == "yarn"

    def rotate(self, x: Array, position: int) -> Array:
        settings, dim = self.rope_settings(), len(x)
        theta, amplitude = settings["rope_theta"], 1.0
        out = np.empty(dim)
        for pair in range(dim // 2):
            turn = theta ** (-2 * pair / dim)
            if self.is_yarn():
                factor, original = settings["factor"], settings["original_max_position_embeddings"]
                bounds = [
                    dim * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(theta))
                    for beta in (settings.get("beta_fast", 32), settings.get("beta_slow", 1))
                ]
                low, high = max(math.floor(bounds[0]), 0), min(math.ceil(bounds[1]), dim - 1)
                share = min(max((pair - low) / (high - low), 0.0), 1.0)
                turn = (1 - share) * turn + share * turn / factor
                if "mscale" not in settings:
                    amplitude = 0.1 * math.log(factor) + 1
            first, second = (2 * pair, 2 * pair + 1) if self.latent else (pair, pair + dim // 2)
            point = complex(x[first], x[second]) * amplitude
            point *= complex(math.cos(position * turn), math.sin(position * turn))
            out[first], out[second] = point.real, point.imag
        return out

    # One layer's attention

    def heads(self) -> int:
        return self.config["num_attention_heads"]

    def keys_values(self, name: str, x: Array, position: int) -> tuple[list[Array], list[Array]]:
        """Key and value of every query head, of a row that enters the projections as x."""
        if self.latent:
            rank, nope = self.config["kv_lora_rank"], self.config["qk_nope_head_dim"]
            joint = self.w(f"{name}.kv_a_proj_with_mqa") @ x
            latent = self.rms(joint[:rank], self.w(f"{name}.kv_a_layernorm"))
            shared = self.rotate(joint[rank:], position)
            both = (self.w(f"{name}.kv_b_proj") @ latent).reshape(self.heads(), -1)
            keys = [np.concatenate((part[:nope], shared)) for part in both]
            return keys, [part[nope:] for part in both]
        kv_heads = self.config["num_key_value_heads"]
        raw = (self.w(f"{name}.k_proj") @ x).reshape(kv_heads, -1)
        normed = [self.rms(key, self.w(f"{name}.k_norm")) for key in raw]
        keys = [self.rotate(key, position) for key in normed]
        values = list((self.w(f"{name}.v_proj") @ x).reshape(kv_heads, -1))
        group = self.heads() // kv_heads
        spread = [head // group for head in range(self.heads())]
        return [keys[head] for head in spread], [values[head] for head in spread]

    def queries(self, name: str, x: Array, position: int) -> list[Array]:
        if self.latent:
            nope = self.config["qk_nope_head_dim"]
            low = self.rms(self.w(f"{name}.q_a_proj") @ x, self.w(f"{name}.q_a_layernorm"))
            raw = (self.w(f"{name}.q_b_proj") @ low).reshape(self.heads(), -1)
            return [np.concatenate((q[:nope], self.rotate(q[nope:], position))) for q in raw]
        raw = (self.w(f"{name}.q_proj") @ x).reshape(self.heads(), -1)
        return [self.rotate(self.rms(q, self.w(f"{name}.q_norm")), position) for q in raw]

    def scale(self, width: int) -> float:
        scale, settings = width**-0.5, self.rope_settings()
        if self.latent and self.is_yarn() and settings.get("mscale_all_dim"):
            scale *= (0.1 * settings["mscale_all_dim"] * math.log(settings["factor"]) + 1) ** 2
        return scale

    def attention(self, name: str, x: Array, position: int, seen: list[Any]) -> Array:
        """`seen`: keys_values of every row that x's row sees, itself among them."""
        outputs = []
        for head, query in enumerate(self.queries(name, x, position)):
            scores = np.array([query @ keys[head] for keys, _ in seen]) * self.scale(len(query))
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            outputs.append(
                sum(s * values[head] for s, (_, values) in zip(shares, seen, strict=True))
            )
        return self.w(f"{name}.o_proj") @ np.concatenate(outputs)

    def mlp(self, name: str, x: Array) -> Array:
        gate = self.w(f"{name}.gate_proj") @ x
        return self.w(f"{name}.down_proj") @ (
            gate / (1 + np.exp(-gate)) * (self.w(f"{name}.up_proj") @ x)
        )

    # DSpark

    def context(self, taps: Array) -> Array:
        names = ("context_proj", "context_norm") if self.latent else ("fc", "hidden_norm")
        return self.rms(self.w(names[0]) @ taps, self.w(names[1]))

    def block(self) -> int:
        return self.config["block_size"]

    def block_hidden(self, taps: Array, anchor: int, start: int = 0) -> list[Array]:
        """Final normed hidden row of each row of the block."""
        config, at = self.config, len(taps)
        kinds = config.get("layer_types", ["full_attention"] * config["num_hidden_layers"])
        contexts = {position: self.context(taps[position]) for position in range(start, at)}
        rows = [self.embed[anchor]]
        rows += [self.embed[config["mask_token_id"]]] * (self.block() - 1)
        for layer, kind in enumerate(kinds):
            name = f"layers.{layer}"
            slides = kind == "sliding_attention"
            first = max(start, at - config["sliding_window"]) if slides else start
            hides = slides and not config["sliding_window_non_causal"]
            far = [
                self.keys_values(f"{name}.self_attn", contexts[position], position)
                for position in range(first, at)
            ]
            inputs = [self.rms(row, self.w(f"{name}.input_layernorm")) for row in rows]
            near = [
                self.keys_values(f"{name}.self_attn", x, at + row) for row, x in enumerate(inputs)
            ]
            for row, x in enumerate(inputs):
                seen = far + (near[: row + 1] if hides else near)
                rows[row] = rows[row] + self.attention(f"{name}.self_attn", x, at + row, seen)
                x = self.rms(rows[row], self.w(f"{name}.post_attention_layernorm"))
                rows[row] = rows[row] + self.mlp(f"{name}.mlp", x)
        return [self.rms(row, self.w("final_norm" if self.latent else "norm")) for row in rows]

    def draft_block(
        self, taps: Array, anchor: int, start: int = 0
    ) -> tuple[list[int], list[float]]:
        drafts, confidences, previous = [], [], anchor
        temperatures = self.config.get("confidence_temperatures", [1.0] * self.block())
        for step, h in enumerate(self.block_hidden(taps, anchor, start)):
            markov = self.w("markov_head.markov_w1")[previous]
            logits = self.head @ h + self.w("markov_head.markov_w2") @ markov
            sure = self.w("confidence_head.proj")[0] @ np.concatenate((h, markov))
            sure += self.weights["confidence_head.proj.bias"][0]
            confidences.append(1 / (1 + math.exp(-sure / temperatures[step])))
            previous = int(logits.argmax())
            drafts.append(previous)
        return drafts, confidences

    # EAGLE3

    def feature(self, taps: Array) -> Array:
        parts = np.split(taps, len(self.config["eagle_aux_hidden_state_layer_ids"]))
        if self.config.get("fc_norm"):
            parts = [self.rms(part, self.w(f"fc_norm.{n}")) for n, part in enumerate(parts)]
        return self.w("fc") @ np.concatenate(parts)

    def joined(self, feature: Array, token: int) -> Array:
        embedded = self.rms(self.embed[token], self.w("layers.0.input_layernorm"))
        return np.concatenate((embedded, self.rms(feature, self.w("layers.0.hidden_norm"))))

    def draft_chain(self, taps: Array, tokens: list[int], count: int, start: int = 0) -> Drafts:
        """tokens[i] follows position i; the last one is the anchor."""
        name, at = "layers.0.self_attn", len(taps)
        features = {position: self.feature(taps[position]) for position in range(start, at)}
        inputs = {p: self.joined(feature, tokens[p]) for p, feature in features.items()}
        seen = [self.keys_values(name, x, position) for position, x in inputs.items()]
        feature, x, position = features[at - 1], inputs[at - 1], at - 1
        drafts: list[int] = []
        chances: list[float] = []
        while len(drafts) < count:
            h = feature + self.attention(name, x, position, seen)
            h = h + self.mlp(
                "layers.0.mlp", self.rms(h, self.w("layers.0.post_attention_layernorm"))
            )
            normed = self.rms(h, self.w("norm"))
            logits = self.head @ normed
            local = int(logits.argmax())
            chances.append(1 / float(np.exp(logits - logits.max()).sum()))
            drafts.append(
                local + int(self.weights["d2t"][local]) if "d2t" in self.weights else local
            )
            feature = normed if self.config.get("norm_output") else h
            position += 1
            x = self.joined(feature, drafts[-1])
            seen = [*seen, self.keys_values(name, x, position)]
        return drafts, chances
