"""The census: every count and byte of a model, from shard headers or from config and index alone.

With the shards at hand sizes are sums of their headers: measured. Without, they follow from
config.json: modelled, and checked against the index's names and its total. Vision is counted
apart, since the text model does not load it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from k3d.errors import CheckpointError
from k3d.placement.budget import Provenance
from k3d.placement.release_files import (
    Index,
    find_release,
    read_headers,
    read_index,
    shards_at_hand,
)
from k3d.placement.release_tensors import (
    Form,
    Tensor,
    TextConfig,
    expert_tensors,
    other_tensors,
    read_text_config,
)
from k3d.safetensors_header import TensorEntry

VISION_PREFIXES = ("vision_tower.", "mm_projector.", "multi_modal_projector.")
_EXPERT = re.compile(
    r"language_model\.model\.layers\.(0|[1-9]\d*)\.block_sparse_moe\.experts\.(0|[1-9]\d*)\.(.+)"
)
_WRONG_MODEL = "config.json and the release are of different models, or one is damaged"


@dataclass(frozen=True)
class FormCounts:
    """One form of the release. `stored` is the form at hand; another is what it would become."""

    form: Form
    stored: bool
    provenance: Provenance
    expert_tensors: int
    expert_bytes: int
    experts_tensors: int
    experts_bytes: int
    other_tensors: int
    other_bytes: int


@dataclass(frozen=True)
class Vision:
    """What the text model leaves unread; `size_bytes` is None when nothing tells."""

    tensors: int
    size_bytes: int | None
    provenance: Provenance


@dataclass(frozen=True)
class Census:
    """The model's numbers. `forms` has the stored form first; it ends with the one served from."""

    source: str
    config: Path
    index: Path | None
    shards: int | None
    tensors: int | None
    layers: int
    moe_layers: int
    experts: int
    top_k: int
    latent: int
    forms: tuple[FormCounts, ...]
    vision: Vision | None

    @property
    def experts_total(self) -> int:
        return self.moe_layers * self.experts

    @property
    def served(self) -> FormCounts:
        """NVFP4: as stored, or as an MXFP4 release is recast."""
        return self.forms[-1]


def take_census(
    model: Path, config: Path | None = None, index: Path | None = None, *, headers: bool = True
) -> Census:
    """Count a release. `headers` False leaves the shards alone even when they are here.

    Raises NotFound for what is missing, CheckpointError naming the tensor, shard or key at fault.
    """
    files = find_release(model, config, index)
    text = read_text_config(files.config)
    listed = None if files.index is None else read_index(files.index)
    folder = (files.index or files.config).parent
    shards = shards_at_hand(folder, listed) if headers else []
    entries = read_headers(shards, listed) if shards else None
    names = entries if entries is not None else None if listed is None else listed.shard_of
    vision: Vision | None = None
    if names is None:
        forms = _both(text, "nvfp4")
    else:
        form = _form(names, files.config)
        _check_names([n for n in names if not n.startswith(VISION_PREFIXES)], text, form)
        forms = _both(text, form)
        if entries is not None:
            forms = (_measured(entries, text, form), *forms[1:])
            vision = _measured_vision(entries)
        elif listed is not None:
            vision = _modelled_vision(listed, forms[0])
    return Census(
        source="headers" if entries is not None else "config and index" if listed else "config",
        config=files.config,
        index=files.index,
        shards=len(shards) or (len(set(listed.shard_of.values())) if listed else None),
        tensors=None if names is None else len(names),
        layers=text.num_hidden_layers,
        moe_layers=len(text.moe_layers),
        experts=text.num_experts,
        top_k=text.num_experts_per_token,
        latent=text.routed_expert_hidden_size,
        forms=forms,
        vision=vision,
    )


def _both(text: TextConfig, stored: Form) -> tuple[FormCounts, ...]:
    """The stored form, and NVFP4 if it is another; both modelled."""
    forms: tuple[Form, ...] = ("nvfp4",) if stored == "nvfp4" else (stored, "nvfp4")
    return tuple(_modelled(text, form, form == stored) for form in forms)


def _modelled(text: TextConfig, form: Form, stored: bool) -> FormCounts:
    one, others = expert_tensors(text, form), list(other_tensors(text, form))
    total = len(text.moe_layers) * text.num_experts
    expert_bytes = sum(tensor.size_bytes for tensor in one)
    return FormCounts(
        form=form,
        stored=stored,
        provenance="modelled",
        expert_tensors=len(one),
        expert_bytes=expert_bytes,
        experts_tensors=total * len(one),
        experts_bytes=total * expert_bytes,
        other_tensors=len(others),
        other_bytes=sum(tensor.size_bytes for tensor in others),
    )


def _form(names: Iterable[str], config: Path) -> Form:
    suffixes = {name.rpartition(".")[2] for name in names if _EXPERT.fullmatch(name)}
    if "weight_scale_2" in suffixes:
        return "nvfp4"
    if "weight_packed" in suffixes and "weight_global_scale" not in suffixes:
        return "mxfp4"
    found = ", ".join(map(repr, sorted(suffixes)[:8])) or "nothing"
    raise CheckpointError(
        f"the release beside {config} stores experts as {found}",
        hint="a census knows NVFP4 (weight, weight_scale, weight_scale_2) and MXFP4 "
        "(weight_packed, weight_scale)",
    )


def _check_names(names: list[str], text: TextConfig, form: Form) -> None:
    """Every name once where it belongs, and none missing. Raises CheckpointError naming one."""
    suffixes = {tensor.name: 1 << bit for bit, tensor in enumerate(expert_tensors(text, form))}
    others = {tensor.name for tensor in other_tensors(text, form)}
    first, experts = text.first_k_dense_replace, text.num_experts
    seen = [0] * (len(text.moe_layers) * experts)
    for name in names:
        match = _EXPERT.fullmatch(name)
        if match is None:
            if name not in others:
                raise CheckpointError(f"tensor {name!r} is none of Kimi-K3's", hint=_WRONG_MODEL)
            others.discard(name)
            continue
        layer, expert, bit = int(match[1]), int(match[2]), suffixes.get(match[3])
        if layer not in text.moe_layers or expert >= experts or bit is None:
            raise CheckpointError(f"tensor {name!r} is none of Kimi-K3's", hint=_WRONG_MODEL)
        seen[(layer - first) * experts + expert] |= bit
    full = (1 << len(suffixes)) - 1
    short = [position for position, bits in enumerate(seen) if bits != full]
    if short:
        layer, expert = divmod(short[0], experts)
        lacking = next(name for name, bit in suffixes.items() if not seen[short[0]] & bit)
        raise CheckpointError(
            f"{len(short)} experts are incomplete: layer {layer + first} expert {expert} has no "
            f"{lacking}",
            hint=_WRONG_MODEL,
        )
    if others:
        raise CheckpointError(
            f"{len(others)} tensors are missing, {min(others)} among them", hint=_WRONG_MODEL
        )


def _measured(entries: Mapping[str, TensorEntry], text: TextConfig, form: Form) -> FormCounts:
    """Sums of the headers. Raises CheckpointError for a shape that config.json contradicts."""
    one = expert_tensors(text, form)
    for layer in text.moe_layers:
        for expert in range(text.num_experts):
            prefix = f"language_model.model.layers.{layer}.block_sparse_moe.experts.{expert}."
            for tensor in one:
                _check_shape(entries[prefix + tensor.name], tensor, exact=True)
    others = [(entries[tensor.name], tensor) for tensor in other_tensors(text, form)]
    for entry, tensor in others:
        _check_shape(entry, tensor, exact=False)
    modelled = _modelled(text, form, stored=True)
    return FormCounts(
        **{
            **vars(modelled),
            "provenance": "measured",
            "other_bytes": sum(entry.size_bytes for entry, _ in others),
        }
    )


def _check_shape(entry: TensorEntry, wanted: Tensor, *, exact: bool) -> None:
    """A scalar may be stored as one element; `exact` also asks for the dtype."""
    same = entry.shape == wanted.shape or (not wanted.shape and entry.shape == (1,))
    if not same or (exact and entry.dtype != wanted.dtype):
        raise CheckpointError(
            f"tensor {entry.name!r} is {entry.dtype} {list(entry.shape)}; config.json asks for "
            f"{wanted.dtype} {list(wanted.shape)}",
            hint=_WRONG_MODEL,
        )


def _measured_vision(entries: Mapping[str, TensorEntry]) -> Vision | None:
    found = [e.size_bytes for name, e in entries.items() if name.startswith(VISION_PREFIXES)]
    return Vision(len(found), sum(found), "measured") if found else None


def _modelled_vision(index: Index, stored: FormCounts) -> Vision | None:
    """What the index's total leaves beside the text. Raises CheckpointError when it is short."""
    tensors = sum(name.startswith(VISION_PREFIXES) for name in index.shard_of)
    text = stored.experts_bytes + stored.other_bytes
    rest = None if index.total_bytes is None else index.total_bytes - text
    if rest is not None and (rest < 0 or bool(rest) != bool(tensors)):
        raise CheckpointError(
            f"{index.path} claims {index.total_bytes} bytes, and config.json asks for {text} "
            f"of text and {tensors} tensors of vision",
            hint=_WRONG_MODEL,
        )
    return Vision(tensors, rest, "modelled") if tensors else None
