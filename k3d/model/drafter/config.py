"""What a drafter is, whoever published it, and what makes it a drafter of this model.

Two kinds draft for Kimi-K3. A *block* drafter (DSpark) runs the anchor and mask rows in one pass
and lets a small sequential head tie the drafts together; a *chain* drafter (EAGLE3) runs one layer
once a draft. Both read hidden rows of the model, its taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from k3d.errors import ConfigError
from k3d.model.config import ModelConfig
from k3d.model.drafter.rope import Rope
from k3d.model.taps import Taps

Layout = Literal["specforge", "inferact", "speculators", "eagle3"]


@dataclass(frozen=True)
class GqaShape:
    """Grouped-query attention; its context row is [keys | values] of every KV head."""

    heads: int
    kv_heads: int
    head_dim: int

    @property
    def row_width(self) -> int:
        return 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class MlaShape:
    """Latent attention; its context row is [normed latent | rotated shared key]."""

    heads: int
    q_lora_rank: int
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int

    @property
    def row_width(self) -> int:
        return self.kv_lora_rank + self.rope_dim


@dataclass(frozen=True)
class BlockDrafting:
    """DSpark's heads. Temperatures divide the confidence logit of each draft in turn."""

    mask_id: int
    markov_rank: int
    temperatures: tuple[float, ...]


@dataclass(frozen=True)
class ChainDrafting:
    """EAGLE3's head of `draft_vocab` rows. 3.1 norms each tap and hands on its normed output."""

    draft_vocab: int
    norm_taps: bool
    norm_output: bool


@dataclass(frozen=True)
class DrafterConfig:
    """`block` is the most drafts of a round. `windows` and `causal` are one entry a draft layer:
    how many context rows before the anchor it sees (None: all), and whether a row of the block
    sees the rows after it."""

    layout: Layout
    hidden_size: int
    layers: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    attention: GqaShape | MlaShape
    rope: Rope
    taps: Taps
    target_layers: int | None
    block: int
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    drafting: BlockDrafting | ChainDrafting

    @property
    def row_width(self) -> int:
        """Float32 values of a context row. A chain also keeps the row's feature, which its next
        round starts from."""
        width = self.layers * self.attention.row_width
        return width + self.hidden_size if isinstance(self.drafting, ChainDrafting) else width


def check_target(config: DrafterConfig, target: ModelConfig, path: Path) -> None:
    """Refuse a drafter of another model; `path` is its config.json. Raises ConfigError."""
    for name, found, wanted in (
        ("hidden_size", config.hidden_size, target.hidden_size),
        ("vocab_size", config.vocab_size, target.vocab_size),
        ("the number of target layers", config.target_layers, target.layers),
    ):
        if found is not None and found != wanted:
            raise ConfigError(
                f"{path}: {name} is {found}; the model has {wanted}",
                hint="this drafter was trained for another model",
            )
    outside = [layer for layer in config.taps.layers if not 0 <= layer < target.layers]
    if outside:
        raise ConfigError(
            f"{path}: it taps the model after layer {outside[0]}, counted from 0; the model has "
            f"layers 0 to {target.layers - 1}",
            hint="this drafter was trained for another model, or its layer ids count from 1",
        )
