"""Tensors of each published layout: one table a layout, shapes from the config.

A table's left column is the name in the file, the right one the part the code calls it by. Parts
are named after the SpecForge layout, so its two columns are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from k3d.model.drafter.config import (
    BlockDrafting,
    ChainDrafting,
    DrafterConfig,
    GqaShape,
    MlaShape,
)

FLOATS = ("BF16", "F32")
EMBED, HEAD, TO_TARGET = "embed_tokens.weight", "lm_head.weight", "d2t"


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a file. `part` is None for what is never read; an `optional` one may be
    absent."""

    name: str
    shape: tuple[int, ...]
    part: str | None
    dtypes: tuple[str, ...] = FLOATS
    optional: bool = False


def tensor_list(config: DrafterConfig) -> list[TensorSpec]:
    """Every tensor of a drafter of this config, in a fixed order."""
    return _TABLES[config.layout](config)


def parameters(specs: list[TensorSpec]) -> int:
    """Values in all of them together."""
    total = 0
    for spec in specs:
        size = 1
        for extent in spec.shape:
            size *= extent
        total += size
    return total


def _specforge(config: DrafterConfig) -> list[TensorSpec]:
    hidden = config.hidden_size
    return [
        _same("fc.weight", hidden, len(config.taps.layers) * hidden),
        _same("hidden_norm.weight", hidden),
        _same("norm.weight", hidden),
        *(spec for layer in range(config.layers) for spec in _layer(config, layer)),
        *_block_heads(config),
    ]


def _inferact(config: DrafterConfig) -> list[TensorSpec]:
    hidden = config.hidden_size
    return [
        TensorSpec("context_proj.weight", (hidden, len(config.taps.layers) * hidden), "fc.weight"),
        TensorSpec("context_norm.weight", (hidden,), "hidden_norm.weight"),
        TensorSpec("final_norm.weight", (hidden,), "norm.weight"),
        # A copy of the model's frozen table; the model's own is used.
        TensorSpec(EMBED, (config.vocab_size, hidden), None),
        *(spec for layer in range(config.layers) for spec in _layer(config, layer)),
        *_block_heads(config),
    ]


def _speculators(config: DrafterConfig) -> list[TensorSpec]:
    vocabulary = (config.vocab_size, config.hidden_size)
    return [*_specforge(config), _same(EMBED, *vocabulary), _same(HEAD, *vocabulary)]


def _eagle3(config: DrafterConfig) -> list[TensorSpec]:
    hidden, taps, chain = config.hidden_size, len(config.taps.layers), config.drafting
    assert isinstance(chain, ChainDrafting)
    specs = [_same("fc.weight", hidden, taps * hidden)]
    if chain.norm_taps:
        specs += [_same(f"fc_norm.{tap}.weight", hidden) for tap in range(taps)]
    specs.append(_same("layers.0.hidden_norm.weight", hidden))
    specs += _layer(config, 0, width=2 * hidden)
    specs.append(_same("norm.weight", hidden))
    specs.append(TensorSpec(EMBED, (config.vocab_size, hidden), EMBED, optional=True))
    reduced = chain.draft_vocab != config.vocab_size
    specs.append(TensorSpec(HEAD, (chain.draft_vocab, hidden), HEAD, optional=not reduced))
    if reduced:
        specs.append(TensorSpec(TO_TARGET, (chain.draft_vocab,), TO_TARGET, ("I64", "I32")))
        # The inverse, which only training needs.
        specs.append(TensorSpec("t2d", (config.vocab_size,), None, ("BOOL", "U8"), optional=True))
    return specs


def _layer(config: DrafterConfig, layer: int, width: int | None = None) -> list[TensorSpec]:
    """A draft layer whose attention reads `width` channels (None: hidden_size)."""
    hidden, inner = config.hidden_size, config.intermediate_size
    width = hidden if width is None else width
    attention = (
        _gqa(config.attention, hidden)
        if isinstance(config.attention, GqaShape)
        else _mla(config.attention, hidden, width)
    )
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        **{f"self_attn.{name}": shape for name, shape in attention.items()},
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    return [_same(f"layers.{layer}.{name}.weight", *shape) for name, shape in shapes.items()]


def _gqa(shape: GqaShape, hidden: int) -> dict[str, tuple[int, ...]]:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
        "q_norm": (shape.head_dim,),
        "k_norm": (shape.head_dim,),
    }


def _mla(shape: MlaShape, hidden: int, width: int) -> dict[str, tuple[int, ...]]:
    return {
        "q_a_proj": (shape.q_lora_rank, width),
        "q_a_layernorm": (shape.q_lora_rank,),
        "q_b_proj": (shape.heads * (shape.nope_dim + shape.rope_dim), shape.q_lora_rank),
        "kv_a_proj_with_mqa": (shape.kv_lora_rank + shape.rope_dim, width),
        "kv_a_layernorm": (shape.kv_lora_rank,),
        "kv_b_proj": (shape.heads * (shape.nope_dim + shape.v_dim), shape.kv_lora_rank),
        "o_proj": (hidden, shape.heads * shape.v_dim),
    }


def _block_heads(config: DrafterConfig) -> list[TensorSpec]:
    drafting = config.drafting
    assert isinstance(drafting, BlockDrafting)
    rank = drafting.markov_rank
    return [
        _same("markov_head.markov_w1.weight", config.vocab_size, rank),
        _same("markov_head.markov_w2.weight", config.vocab_size, rank),
        _same("confidence_head.proj.weight", 1, config.hidden_size + rank),
        _same("confidence_head.proj.bias", 1),
    ]


def _same(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, shape, name)


_TABLES = {
    "specforge": _specforge,
    "inferact": _inferact,
    "speculators": _speculators,
    "eagle3": _eagle3,
}
