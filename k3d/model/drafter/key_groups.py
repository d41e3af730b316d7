"""Groups of keys that the published drafters share, each read and checked as one thing."""

from __future__ import annotations

from typing import Any, TypedDict

from k3d.errors import ConfigError
from k3d.model.drafter.config import GqaShape, MlaShape
from k3d.model.drafter.keys import Keys
from k3d.model.drafter.rope import Rope, Yarn, mscale
from k3d.model.taps import TapStream


class Widths(TypedDict):
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float


def widths(keys: Keys) -> Widths:
    keys.require("hidden_act", "silu")
    return {
        "hidden_size": keys.whole("hidden_size"),
        "intermediate_size": keys.whole("intermediate_size"),
        "vocab_size": keys.whole("vocab_size"),
        "rms_norm_eps": keys.real("rms_norm_eps"),
    }


def gqa(keys: Keys) -> GqaShape:
    shape = GqaShape(
        keys.whole("num_attention_heads"),
        keys.whole("num_key_value_heads"),
        keys.whole("head_dim"),
    )
    if shape.heads % shape.kv_heads:
        raise keys.refuse(
            "num_attention_heads", f"is {shape.heads}, no multiple of {shape.kv_heads} KV heads"
        )
    return shape


def mla(keys: Keys) -> MlaShape:
    return MlaShape(
        keys.whole("num_attention_heads"),
        keys.whole("q_lora_rank"),
        keys.whole("kv_lora_rank"),
        keys.whole("qk_nope_head_dim"),
        keys.whole("qk_rope_head_dim"),
        keys.whole("v_head_dim"),
    )


def rope(keys: Keys, shape: GqaShape | MlaShape) -> Rope:
    """Either `rope_parameters`, or `rope_theta` beside `rope_scaling`, which may be null but not
    absent: YaRN left out costs acceptance without an error."""
    scaling: Keys | None
    if keys.get("rope_parameters") is not None:
        scaling = keys.section("rope_parameters")
        theta = (scaling if scaling.get("rope_theta") is not None else keys).real("rope_theta")
    else:
        theta = keys.real("rope_theta")
        if not keys.holds("rope_scaling"):
            raise keys.refuse("rope_scaling", "is missing", hint="null says there is none")
        scaling = None if keys.get("rope_scaling") is None else keys.section("rope_scaling")
    is_gqa = isinstance(shape, GqaShape)
    dim = shape.head_dim if isinstance(shape, GqaShape) else shape.rope_dim
    if dim % 2:
        raise keys.refuse("head_dim" if is_gqa else "qk_rope_head_dim", f"is {dim}, not even")
    yarn = None if scaling is None else _yarn(scaling, latent=not is_gqa)
    return Rope(theta, dim, interleaved=not is_gqa, yarn=yarn)


def _yarn(keys: Keys, *, latent: bool) -> Yarn | None:
    name = "type" if keys.get("rope_type") is None else "rope_type"
    if keys.text(name, "default", "yarn", "deepseek_yarn") == "default":
        return None
    keys.require("truncate", True)
    factor = keys.real("factor")
    whole_dim = keys.real("mscale_all_dim") if keys.get("mscale_all_dim") else 0.0
    growth = mscale(factor, keys.real("mscale", default=1.0)) / mscale(factor, whole_dim)
    # Latent attention takes the growth into its softmax scale, on query and key alike.
    gain = mscale(factor, whole_dim) ** 2 if latent else 1.0
    return Yarn(
        factor,
        keys.whole("original_max_position_embeddings"),
        keys.real("beta_fast", default=32.0),
        keys.real("beta_slow", default=1.0),
        keys.real("attention_factor", default=growth),
        gain,
    )


def masks(keys: Keys, inner: Keys, layers: int) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Each layer's window, and whether it hides later rows of the block.

    Layers see the whole context and the whole block unless the file says otherwise. A sliding
    layer is causal or not by `sliding_window_non_causal`; `causal` decides for all.
    """
    kinds = inner.many("layer_types") if inner.holds("layer_types") else ["full_attention"] * layers
    if len(kinds) != layers or not set(kinds) <= {"full_attention", "sliding_attention"}:
        raise inner.refuse(
            "layer_types", f"is {kinds!r}, not full_attention or sliding_attention a layer"
        )
    sliding = [kind == "sliding_attention" for kind in kinds]
    window = inner.whole("sliding_window") if any(sliding) else None
    windows = tuple(window if slides else None for slides in sliding)
    if keys.get("causal") is not None:
        return windows, (keys.flag("causal"),) * layers
    hides = any(sliding) and not keys.flag("sliding_window_non_causal")
    return windows, tuple(slides and hides for slides in sliding)


def tap_layers(keys: Keys, key: str, base: int) -> tuple[int, ...]:
    """Zero-based layers from ids that count from `base`."""
    ids = keys.many(key)
    if not ids or not all(type(number) is int for number in ids):
        raise keys.refuse(key, f"is {ids!r}, not a list of layer ids")
    if sorted(set(ids)) != ids:
        raise keys.refuse(
            key, f"is {ids!r}, not ascending", hint="taps are joined in the order of the layers"
        )
    if ids[0] < base:
        raise keys.refuse(key, f"names layer {ids[0]}, but its ids count from {base}")
    return tuple(number - base for number in ids)


def tap_stream(keys: Keys, known: TapStream | None, *, fixed: bool = False) -> TapStream:
    """What the file says, else what is `known` of its layout; `fixed` allows nothing else."""
    if known is not None and keys.get("tap_stream") is None:
        return known
    hint = "raw_prefix or materialized: with the wrong one no draft is ever accepted"
    stated = keys.text("tap_stream", "raw_prefix", "materialized", hint=hint)
    if fixed and stated != known:
        raise keys.refuse("tap_stream", f"is {stated}; this layout reads {known}")
    return "raw_prefix" if stated == "raw_prefix" else "materialized"


def drafts(keys: Keys, wanted: int | None) -> int:
    """Drafts a block. `block_size` is that number; files that store the rows of a verify pass,
    one more, are read when the caller says how many drafts are `wanted`."""
    stored = keys.whole("block_size", hint="add how many drafts a block has")
    for stated in _stated_drafts(keys):
        if stated != stored:
            raise keys.refuse(
                "block_size", f"is {stored}, but its own proposal settings draft {stated}",
                hint="a block of DSpark has as many rows as drafts, the anchor's among them",
            )  # fmt: skip
    if wanted is None or wanted == stored:
        return stored
    if wanted == stored - 1:
        return wanted
    raise keys.refuse("block_size", f"is {stored}; asked for {wanted} drafts",
                      hint=f"ask for {stored}, or for {stored - 1} if the file counts the rows "
                      "of a verify pass")  # fmt: skip


def _stated_drafts(keys: Keys) -> list[Any]:
    stated = [keys.get("num_speculative_tokens")]
    if keys.get("speculators_config") is not None:
        methods = keys.section("speculators_config").get("proposal_methods") or []
        stated += [method.get("speculative_tokens") for method in methods]
    return [number for number in stated if number is not None]


def temperatures(keys: Keys, block: int) -> tuple[float, ...]:
    """One for each draft; 1 leaves the confidence head as it was trained."""
    if keys.get("confidence_temperatures") is None:
        return (1.0,) * block
    values = keys.many("confidence_temperatures")
    sound = all(type(value) in (int, float) and 0 < value < float("inf") for value in values)
    if not sound or len(values) != block:
        raise keys.refuse(
            "confidence_temperatures", f"is {values!r}, not {block} numbers above 0, one a draft"
        )
    return tuple(float(value) for value in values)


def same(keys: Keys, **wanted: object) -> None:
    """Refuse keys that are there with another value than the one that can be run."""
    for key, value in wanted.items():
        keys.require(key, value)


def unknown(keys: Keys, key: str, choices: tuple[str, ...]) -> ConfigError:
    """The error for a value that names no drafter this reads."""
    return keys.refuse(
        key, f"is {keys.get(key)!r}, which names no drafter of Kimi-K3",
        hint=f"known: {', '.join(choices)}",
    )  # fmt: skip
