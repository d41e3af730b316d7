"""Traces from other files: k3-mini's held-out streams, plain npz, JSON, and traces themselves.

| source | keys |
| --- | --- |
| held-out npz | stream_experts [S, T, layers, k], prompt_experts, prompt_lengths, moe_layers |
| plain npz | ids [tokens, layers, k]; may have weights alike, sequence [tokens], layers, experts |
| JSON | the same keys as lists |
| trace | its own format; `salvage` keeps the whole blocks of a damaged one |
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from k3d.errors import ConfigError, NotFound
from k3d.placement.budget import Provenance
from k3d.placement.trace import BLOCK_TOKENS, MAGIC, TraceHeader, read_trace
from k3d.placement.trace_writer import TraceWriter

Part = Literal["all", "streams", "prompts"]


@dataclass(frozen=True)
class Imported:
    """What an import wrote."""

    path: Path
    header: TraceHeader
    tokens: int
    size_bytes: int


@dataclass(frozen=True)
class _Rows:
    ids: np.ndarray
    weights: np.ndarray | None
    sequence: np.ndarray
    layers: tuple[int, ...] | None
    experts: int | None


def import_trace(
    source: Path,
    out: Path,
    *,
    experts: int | None,
    layers: tuple[int, ...] | None,
    first_layer: int | None = None,
    part: Part = "all",
    salvage: bool = False,
    provenance: Provenance = "measured",
) -> Imported:
    """Write `source` as a trace. `experts` and `layers` are the model's, if it is known.

    `first_layer` numbers the layers of a source that does not, one after the other.

    Raises NotFound, ConfigError naming the key, token or layer at fault; `out` is then untouched.
    """
    rows = _read(source, part, salvage)
    layers = rows.layers or layers
    experts = rows.experts or experts
    if rows.ids.ndim != 3 or not rows.ids.size:
        raise ConfigError(
            f"{source}: ids are {list(rows.ids.shape)}, not [tokens, layers, experts a token]"
        )
    if layers is None and first_layer is not None:
        layers = tuple(range(first_layer, first_layer + rows.ids.shape[1]))
    if layers is None or experts is None:
        raise ConfigError(
            f"{source} does not say how many experts a layer has, or which layers these are",
            hint="name the model with --model, or give --experts and --first-layer",
        )
    if len(layers) != rows.ids.shape[1]:
        raise ConfigError(
            f"{source}: tokens chose in {rows.ids.shape[1]} layers, the model has {len(layers)}",
            hint="the trace is of another model",
        )
    header = TraceHeader(
        layers=layers,
        experts=experts,
        top_k=rows.ids.shape[2],
        weights=rows.weights is not None,
        source=_named(source) if part == "all" else f"{_named(source)}, {part}",
        provenance=provenance,
    )
    try:
        check_header(header)
        with TraceWriter(out, header) as writer:
            for start in range(0, len(rows.ids), BLOCK_TOKENS):
                taken = slice(start, start + BLOCK_TOKENS)
                weights = None if rows.weights is None else rows.weights[taken]
                writer.append(rows.ids[taken], weights, rows.sequence[taken])
    except ConfigError as error:
        raise ConfigError(f"{source}: {error.message}", hint=error.hint) from error
    return Imported(out, header, writer.tokens, out.stat().st_size)


def _named(source: Path) -> str:
    """The file's name as plain text."""
    return "".join(c if c.isprintable() else "?" for c in source.name)


def check_header(header: TraceHeader) -> None:
    """Raises ConfigError for a header that could not be read again."""
    if list(header.layers) != sorted(set(header.layers)) or header.layers[0] < 0:
        raise ConfigError("trace: its layers are not ascending layer numbers")
    if not header.top_k <= header.experts <= 2**16:
        raise ConfigError(f"trace: {header.top_k} experts a token of {header.experts}")


def _read(source: Path, part: Part, salvage: bool) -> _Rows:
    try:
        with source.open("rb") as file:
            start = file.read(8)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {source}", hint="name an npz, JSON or trace") from error
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from error
    if start == MAGIC:
        trace = read_trace(source, salvage=salvage)
        weights = None if trace.weights is None else trace.weights.transpose(1, 0, 2)
        ids = trace.ids.transpose(1, 0, 2)
        return _Rows(ids, weights, trace.sequence, trace.layers, trace.experts)
    if start[:4] == b"PK\x03\x04":
        return _npz(source, part)
    return _plain(_json(source), source)


def _npz(source: Path, part: Part) -> _Rows:
    try:
        with source.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ConfigError(f"{source} is a damaged npz: {error}") from error
    if "stream_experts" in arrays:
        return _heldout(arrays, source, part)
    return _plain(arrays, source)


def _heldout(arrays: Mapping[str, np.ndarray], source: Path, part: Part) -> _Rows:
    missing = {"prompt_experts", "prompt_lengths", "moe_layers"} - arrays.keys()
    if missing:
        raise ConfigError(f"{source} has no {', '.join(sorted(missing))}")
    streams, prompts = arrays["stream_experts"], arrays["prompt_experts"]
    lengths = arrays["prompt_lengths"]
    if streams.ndim != 4 or prompts.ndim != 4 or lengths.shape != prompts.shape[:1]:
        raise ConfigError(f"{source}: stream_experts and prompt_experts are not [rows, tokens, ..]")
    if lengths.size and not 0 <= int(lengths.min()) <= int(lengths.max()) <= prompts.shape[1]:
        raise ConfigError(f"{source}: prompt_lengths are not within {prompts.shape[1]} tokens")
    pieces = [] if part == "prompts" else list(streams)
    if part != "streams":
        pieces += [prompt[:length] for prompt, length in zip(prompts, lengths, strict=True)]
    sequence = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    layers = tuple(int(layer) for layer in arrays["moe_layers"])
    return _Rows(np.concatenate(pieces), None, sequence, layers, None)


def _json(source: Path) -> dict[str, Any]:
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{source} is neither npz, JSON nor a trace: {error}",
            hint="k3ctl trace import --help lists what it reads",
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: the document is not an object with ids")
    return document


def _plain(values: Mapping[str, Any], source: Path) -> _Rows:
    if "ids" not in values:
        raise ConfigError(f"{source} has no ids", hint="ids are [tokens, layers, experts a token]")
    ids = _array(values, "ids", source)
    weights = _array(values, "weights", source) if values.get("weights") is not None else None
    if weights is not None and weights.shape != ids.shape:
        raise ConfigError(f"{source}: weights are {list(weights.shape)}, ids {list(ids.shape)}")
    sequence = np.zeros(len(ids) if ids.ndim else 0, np.uint32)
    if values.get("sequence") is not None:
        sequence = _array(values, "sequence", source)
        if sequence.shape != ids.shape[:1]:
            raise ConfigError(
                f"{source}: sequence has {len(sequence)} numbers for {len(ids)} tokens"
            )
    layers = experts = None
    if values.get("layers") is not None:
        layers = tuple(int(layer) for layer in _array(values, "layers", source).ravel())
    if values.get("experts") is not None:
        experts = int(_array(values, "experts", source).ravel()[0])
    if weights is not None and weights.dtype.kind in "iu":
        weights = weights.astype(np.float64)
    return _Rows(ids, weights, sequence, layers, experts)


def _array(values: Mapping[str, Any], key: str, source: Path) -> np.ndarray:
    try:
        found = np.asarray(values[key])
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{source}: {key} is not an array: {error}") from error
    kinds = "iuf" if key == "weights" else "iu"
    if found.dtype.kind not in kinds or (key != "ids" and not found.size):
        raise ConfigError(f"{source}: {key} is {found.dtype}, not numbers")
    if key == "sequence" and (int(found.min()) < 0 or int(found.max()) >= 2**32):
        raise ConfigError(f"{source}: sequence is not numbers from 0 to 2^32 - 1")
    return found
