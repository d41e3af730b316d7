"""Traces: which experts each token chose in each layer, in a compact file.

| bytes | content |
| --- | --- |
| 0..8 | `K3TRACE1` |
| 8..12 | u32 n, length of the JSON; every integer is little-endian |
| 12..12+n | JSON: schema, layers, experts, top_k, weights (true or false), source, provenance |
| then blocks | `BLK1`, u32 tokens, u32 length, u32 CRC-32 of the payload, payload |

A payload is zlib over: sequence u32 [tokens], which sequence a token belongs to; ids u16
[layers, tokens, top_k], ascending; and, if any, weights f16 of the same shape. The file grows by
whole blocks, so what a recorder wrote before it died can be read.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from k3d.errors import ConfigError, NotFound
from k3d.placement.budget import Provenance
from k3d.placement.pod import MOST_EXPERTS

MAGIC = b"K3TRACE1"
BLOCK = b"BLK1"
SCHEMA = "k3-trace/1"
BLOCK_TOKENS = 1024
LARGEST_HEADER_BYTES = 1 << 20
LARGEST_BLOCK_BYTES = 1 << 30
BLOCK_HEADER = struct.Struct("<4sIII")
_DAMAGED = "the file is damaged; `k3ctl trace import --salvage` keeps what is whole before it"


class TraceHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace is of. `layers` are model layer numbers of the MoE layers, ascending."""

    schema: Literal["k3-trace/1"] = SCHEMA
    layers: Annotated[tuple[int, ...], msgspec.Meta(min_length=1, max_length=4096)]
    experts: Annotated[int, msgspec.Meta(ge=1, le=2**16)]
    top_k: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    weights: bool
    source: str = ""
    provenance: Provenance = "measured"


@dataclass(frozen=True)
class Trace:
    """ids u16 [layers, tokens, top_k] ascending, weights f16 alike or None, sequence u32 [tokens].

    Tokens of one sequence are consecutive and in its order.
    """

    header: TraceHeader
    ids: NDArray[np.uint16]
    weights: NDArray[np.float16] | None
    sequence: NDArray[np.uint32]

    @property
    def layers(self) -> tuple[int, ...]:
        return self.header.layers

    @property
    def experts(self) -> int:
        return self.header.experts

    @property
    def top_k(self) -> int:
        return self.header.top_k

    @property
    def tokens(self) -> int:
        return self.ids.shape[1]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each expert was chosen, i64 [layers, experts]."""
        return np.stack([np.bincount(row.ravel(), minlength=self.experts) for row in self.ids])

    def sampled(self, tokens: int) -> Trace:
        """Stretches of the trace, evenly spread, of `tokens` tokens or a few less."""
        if tokens >= self.tokens:
            return self
        stretch = min(64, tokens)
        starts = np.linspace(0, self.tokens - stretch, max(1, tokens // stretch)).astype(int)
        kept = np.unique((starts[:, None] + np.arange(stretch)).ravel())
        weights = None if self.weights is None else self.weights[:, kept]
        return Trace(self.header, self.ids[:, kept], weights, self.sequence[kept])


def read_trace(path: Path, *, with_weights: bool = True, salvage: bool = False) -> Trace:
    """A trace from its file; `salvage` keeps the whole blocks before the first damaged one.

    Raises NotFound, ConfigError naming the file and the block that is damaged.
    """
    try:
        with path.open("rb") as file:
            header = _read_header(file, path)
            try:
                blocks = _blocks(file, path, header)
            except _Damaged as damage:
                blocks = damage.whole
                if not salvage:
                    raise ConfigError(damage.sentence, hint=_DAMAGED) from None
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no trace {path}",
            hint=f"record the pod's traffic: k3ctl trace record {path}",
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not blocks:
        raise ConfigError(f"{path} holds no token", hint="import or record some")
    sequence, ids, weights = zip(*blocks, strict=True)
    kept = [part for part in weights if part is not None] if with_weights else []
    return Trace(
        header,
        np.concatenate(ids, axis=1),
        np.concatenate(kept, axis=1) if kept else None,
        np.concatenate(sequence),
    )


_Block = tuple[NDArray[np.uint32], NDArray[np.uint16], NDArray[np.float16] | None]


class _Damaged(Exception):
    """A block that cannot be used; `whole` are those before it."""

    def __init__(self, sentence: str, whole: list[_Block]) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.whole = whole


def _read_header(file: BinaryIO, path: Path) -> TraceHeader:
    start = file.read(12)
    if start[:8] != MAGIC or len(start) < 12:
        raise ConfigError(f"{path} is not a trace", hint="make one: k3ctl trace import SOURCE OUT")
    (length,) = struct.unpack_from("<I", start, 8)
    text = file.read(min(length, LARGEST_HEADER_BYTES))
    try:
        header = msgspec.json.decode(text, type=TraceHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the trace's header is damaged: {error}") from error
    if list(header.layers) != sorted(set(header.layers)) or header.layers[0] < 0:
        raise ConfigError(f"{path}: the trace's layers are not ascending layer numbers")
    if header.top_k > header.experts:
        raise ConfigError(f"{path}: {header.top_k} experts a token of {header.experts}")
    if len(header.layers) * header.experts > MOST_EXPERTS:
        raise ConfigError(
            f"{path}: {len(header.layers)} layers of {header.experts} experts are more than "
            f"{MOST_EXPERTS:,}",
            hint="the trace is damaged",
        )
    if not header.source.isprintable():
        raise ConfigError(f"{path}: the trace's source is {header.source[:64]!r}, no plain text")
    return header


def _blocks(file: BinaryIO, path: Path, header: TraceHeader) -> list[_Block]:
    whole: list[_Block] = []
    tokens = 0

    def damaged(what: str) -> _Damaged:
        return _Damaged(f"{path}: the block after token {tokens} {what}", whole)

    layers, top_k = len(header.layers), header.top_k
    while head := file.read(BLOCK_HEADER.size):
        if len(head) < BLOCK_HEADER.size:
            raise damaged("is truncated")
        mark, count, length, checksum = BLOCK_HEADER.unpack(head)
        size = count * (4 + layers * top_k * (4 if header.weights else 2))
        if mark != BLOCK or not count or size > LARGEST_BLOCK_BYTES or length > size + 1024:
            raise damaged("has no sound header")
        payload = file.read(length)
        if len(payload) < length:
            raise damaged("is truncated")
        if zlib.crc32(payload) != checksum:
            raise damaged("does not match its checksum")
        raw = _inflated(payload, size)
        if raw is None:
            raise damaged("does not hold what its header says")
        block = _block(raw, count, header)
        if isinstance(block, str):
            raise damaged(block)
        whole.append(block)
        tokens += count
    return whole


def _inflated(payload: bytes, size: int) -> bytes | None:
    """Exactly `size` bytes, or None; never more memory than that."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(payload, size)
        more = inflater.decompress(inflater.unconsumed_tail, 1)
    except zlib.error:
        return None
    return raw if len(raw) == size and not more else None


def _block(raw: bytes, count: int, header: TraceHeader) -> _Block | str:
    """Arrays of a payload, or what is wrong with it."""
    shape = (len(header.layers), count, header.top_k)
    sequence = np.frombuffer(raw, "<u4", count).astype(np.uint32)
    ids = np.frombuffer(raw, "<u2", np.prod(shape), 4 * count).reshape(shape).astype(np.uint16)
    if int(ids.max()) >= header.experts:
        return f"names expert {int(ids.max())} of {header.experts}"
    if (ids[..., 1:] <= ids[..., :-1]).any():
        return "names experts twice or out of order"
    weights = None
    if header.weights:
        offset = 4 * count + ids.nbytes
        weights = np.frombuffer(raw, "<f2", np.prod(shape), offset).reshape(shape)
        weights = weights.astype(np.float16)
        if not np.isfinite(weights).all() or (weights < 0).any():
            return "holds a weight that is no number from 0 on"
    return sequence, ids, weights
