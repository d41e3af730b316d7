"""One decoder layer of a drafter, with its matrices stacked where they read the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from k3d.model.drafter.attention import Attention, attention_from_tensors
from k3d.model.drafter.config import DrafterConfig


@dataclass(frozen=True)
class DraftLayer:
    """gate_up: gate rows, then up rows."""

    input_norm: Tensor
    attention: Attention
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def from_tensors(
        cls, config: DrafterConfig, tensors: Mapping[str, Tensor], layer: int
    ) -> DraftLayer:
        prefix = f"layers.{layer}."
        gate_up = [tensors[f"{prefix}mlp.{name}_proj.weight"] for name in ("gate", "up")]
        return cls(
            tensors[f"{prefix}input_layernorm.weight"],
            attention_from_tensors(config, tensors, f"{prefix}self_attn."),
            tensors[f"{prefix}post_attention_layernorm.weight"],
            torch.cat(gate_up),
            tensors[f"{prefix}mlp.down_proj.weight"],
        )

    def mlp(self, x: Tensor) -> Tensor:
        gate, up = linear(x, self.gate_up).chunk(2, dim=-1)
        return linear(silu(gate) * up, self.down)
