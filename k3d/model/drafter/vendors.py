"""The config.json of each published drafter, read into one DrafterConfig.

| layout | published by | attention | layer ids | stream if the file does not say |
| --- | --- | --- | --- | --- |
| specforge | RadixArk (SpecForge), k3-mini's own | GQA | from 0 | materialized for RadixArk's |
| inferact | Inferact (TorchSpec) | MLA | from 0 | raw_prefix |
| speculators | RedHatAI (speculators) | GQA | `tap_id_base` says | none: `tap_stream` says |
| eagle3 | LightSeek (TorchSpec), 3.0 and 3.1 | MLA | from 1 | raw_prefix |

RedHatAI's file says neither from where its layer ids count nor which stream they are taken from,
and with the wrong one every draft is rejected without an error; so whoever fetches that drafter
adds both keys. SpecForge keeps its drafting keys in `dflash_config`, or beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from k3d.model.drafter import key_groups as groups
from k3d.model.drafter.config import (
    BlockDrafting,
    ChainDrafting,
    DrafterConfig,
    GqaShape,
    Layout,
    MlaShape,
)
from k3d.model.drafter.keys import Keys
from k3d.model.taps import Taps

_ARCHITECTURES: dict[str, Layout] = {
    "DSparkDraftModel": "specforge",
    "K3DSparkModel": "inferact",
    "KimiK3DSparkModel": "inferact",
    "K3DSparkForCausalLM": "inferact",
    "KimiK3DSparkForCausalLM": "inferact",
    "Eagle3DeepseekV2ForCausalLM": "eagle3",
    "Eagle3DeepseekV3ForCausalLM": "eagle3",
}


def read_config(folder: Path, block: int | None = None) -> DrafterConfig:
    """The drafter in `folder`; `block` drafts a round if given, else what the file says.

    Raises ConfigError naming the key.
    """
    keys = Keys.from_file(folder / "config.json")
    return _READERS[_layout(keys)](keys, block)


def _layout(keys: Keys) -> Layout:
    if keys.get("layout") is not None:
        for layout in _READERS:
            if keys.get("layout") == layout:
                return layout
        raise groups.unknown(keys, "layout", tuple(_READERS))
    if keys.get("speculators_model_type") is not None:
        keys.require("speculators_model_type", "dspark")
        return "speculators"
    named = keys.many("architectures")
    if len(named) == 1 and named[0] in _ARCHITECTURES:
        return _ARCHITECTURES[named[0]]
    raise groups.unknown(keys, "architectures", tuple(_ARCHITECTURES))


def _specforge(keys: Keys, block: int | None) -> DrafterConfig:
    keys = keys.beside("dflash_config")
    # RadixArk's engine feeds this kind the stream it materializes, and the file names none.
    radixark = keys.get("layout") is None and keys.get("model_type") == "qwen3"
    stream = groups.tap_stream(keys, "materialized" if radixark else None)
    taps = Taps(groups.tap_layers(keys, "target_layer_ids", 0), stream)
    return _block(
        "specforge", keys, keys, groups.gqa(keys), taps, block, _count(keys, "num_target_layers")
    )


def _inferact(keys: Keys, block: int | None) -> DrafterConfig:
    keys = keys.beside("dflash_config")
    groups.same(keys, mla_use_nope=False, mla_use_output_gate=False)
    stream = groups.tap_stream(keys, "raw_prefix", fixed=True)
    taps = Taps(groups.tap_layers(keys, "target_layer_ids", 0), stream)
    groups.same(keys, num_target_layers=len(taps.layers))  # what it calls its taps
    target = _count(keys, "target_num_hidden_layers")
    return _block("inferact", keys, keys, groups.mla(keys), taps, block, target)


def _speculators(keys: Keys, block: int | None) -> DrafterConfig:
    inner = keys.section("transformer_layer_config")
    hint = "add tap_id_base: 0 or 1, the id its publisher gives the model's first layer"
    base = keys.whole("tap_id_base", least=0, hint=hint)
    if base > 1:
        raise keys.refuse("tap_id_base", f"is {base}, not 0 or 1")
    taps = Taps(
        groups.tap_layers(keys, "aux_hidden_state_layer_ids", base), groups.tap_stream(keys, None)
    )
    return _block("speculators", keys, inner, groups.gqa(inner), taps, block, None)


def _block(
    layout: Layout,
    keys: Keys,
    inner: Keys,
    shape: GqaShape | MlaShape,
    taps: Taps,
    block: int | None,
    target_layers: int | None,
) -> DrafterConfig:
    """`keys` say how it drafts, `inner` what its layers are; often they are the same."""
    groups.same(
        keys,
        markov_head_type="vanilla",
        enable_confidence_head=True,
        confidence_head_with_markov=True,
        sample_from_anchor=True,
        target_hidden_size=inner.get("hidden_size"),
        draft_vocab_size=inner.get("vocab_size"),
    )
    groups.same(inner, attention_bias=False)
    widths, layers = groups.widths(inner), inner.whole("num_hidden_layers")
    mask = keys.whole("mask_token_id", least=0)
    if mask >= widths["vocab_size"]:
        raise keys.refuse(
            "mask_token_id", f"is {mask}, outside a vocabulary of {widths['vocab_size']}"
        )
    drafts = groups.drafts(keys, block)
    windows, causal = groups.masks(keys, inner, layers)
    return DrafterConfig(
        layout=layout,
        **widths,
        layers=layers,
        attention=shape,
        rope=groups.rope(inner, shape),
        taps=taps,
        target_layers=target_layers,
        block=drafts,
        windows=windows,
        causal=causal,
        drafting=BlockDrafting(mask, keys.whole("markov_rank"), groups.temperatures(keys, drafts)),
    )


def _eagle3(keys: Keys, block: int | None) -> DrafterConfig:
    keys = keys.beside("eagle_config")
    groups.same(keys, num_hidden_layers=1, attention_bias=False)
    stream = groups.tap_stream(keys, "raw_prefix", fixed=True)
    taps = Taps(groups.tap_layers(keys, "eagle_aux_hidden_state_layer_ids", 1), stream)
    widths, shape = groups.widths(keys), groups.mla(keys)
    vocab = widths["vocab_size"]
    draft_vocab = _count(keys, "draft_vocab_size") or vocab
    if draft_vocab > vocab:
        raise keys.refuse("draft_vocab_size", f"is {draft_vocab}, more than vocab_size {vocab}")
    if block is None:
        hint = "a chain has no length of its own; add how many drafts a round has at most"
        block = keys.whole("num_speculative_tokens", hint=hint)
    # 3.1 says both; 3.0 has neither.
    norm_taps = keys.flag("fc_norm", default=False)
    norm_output = keys.flag("norm_output", default=None if norm_taps else False)
    return DrafterConfig(
        layout="eagle3",
        **widths,
        layers=1,
        attention=shape,
        rope=groups.rope(keys, shape),
        taps=taps,
        target_layers=None,
        block=block,
        windows=(None,),
        causal=(True,),
        drafting=ChainDrafting(draft_vocab, norm_taps, norm_output),
    )


def _count(keys: Keys, key: str) -> int | None:
    """A whole number, or None if the file does not give it."""
    return None if keys.get(key) is None else keys.whole(key)


_READERS: dict[Layout, Callable[[Keys, int | None], DrafterConfig]] = {
    "specforge": _specforge,
    "inferact": _inferact,
    "speculators": _speculators,
    "eagle3": _eagle3,
}
