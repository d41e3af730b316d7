"""Reading a safetensors shard's header: where each tensor lies, checked before anything is used.

| bytes | content |
| --- | --- |
| 0..8 | u64 little-endian: length n of the JSON |
| 8..8+n | JSON: name -> {dtype, shape, data_offsets [begin, end)}; offsets count from byte 8+n |
| 8+n.. | data, every byte owned by one tensor |
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3d.errors import CheckpointError

DTYPE_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1,
               "I64": 8, "I32": 4, "BOOL": 1}  # fmt: skip
MAX_HEADER_BYTES = 100_000_000
_HINT = "the shard is damaged or still being copied; fetch it again"


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: `offset` is its first byte in the file `path`."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


def read_header(path: Path) -> list[TensorEntry]:
    """Entries of one shard, in the header's order. Raises CheckpointError naming the shard."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise CheckpointError(f"shard {path.name} is {size} bytes long", hint=_HINT)
            (length,) = struct.unpack("<Q", prefix)
            if length > min(MAX_HEADER_BYTES, size - 8):
                raise CheckpointError(
                    f"shard {path.name} announces a header of {length} bytes in a file of {size}",
                    hint=_HINT,
                )
            raw = file.read(length)
    except FileNotFoundError:
        raise CheckpointError(f"shard {path} is missing", hint="fetch it again") from None
    except OSError as error:
        raise CheckpointError(
            f"shard {path} cannot be read: {error.strerror}", hint="check the file"
        ) from error
    try:
        header = json.loads(raw, object_pairs_hook=_unique)
    except _Duplicate as duplicate:
        raise CheckpointError(
            f"shard {path.name} lists tensor {duplicate} twice", hint=_HINT
        ) from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"the header of shard {path.name} is not JSON", hint=_HINT) from None
    if not isinstance(header, dict):
        raise CheckpointError(f"the header of shard {path.name} is not an object", hint=_HINT)
    data_start = 8 + length
    entries = [
        _entry(path, name, value, data_start)
        for name, value in header.items()
        if name != "__metadata__"
    ]
    _check_cover(path, entries, data_start, size)
    return entries


class _Duplicate(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Duplicate(name)
            seen.add(name)
    return result


def _entry(path: Path, name: str, value: Any, data_start: int) -> TensorEntry:
    def refuse(what: str) -> CheckpointError:
        return CheckpointError(f"shard {path.name}: tensor {name} {what}", hint=_HINT)

    if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= value.keys():
        raise refuse("has no dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise refuse(f"has dtype {dtype!r}, which no Kimi-K3 release uses")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise refuse(f"has shape {shape!r}")
    whole = isinstance(offsets, list) and len(offsets) == 2
    if not whole or not all(type(n) is int for n in offsets) or not 0 <= offsets[0] <= offsets[1]:
        raise refuse(f"has data_offsets {offsets!r}")
    size = math.prod(shape) * DTYPE_BYTES[dtype]
    if offsets[1] - offsets[0] != size:
        raise refuse(f"is {dtype} {shape}, {size} bytes, but spans {offsets[1] - offsets[0]}")
    return TensorEntry(name, path, dtype, tuple(shape), data_start + offsets[0], size)


def _check_cover(path: Path, entries: list[TensorEntry], data_start: int, size: int) -> None:
    end = data_start
    for entry in sorted(entries, key=lambda e: (e.offset, e.size_bytes)):
        if entry.offset != end:
            kind = "overlaps another" if entry.offset < end else "leaves a gap before it"
            raise CheckpointError(
                f"shard {path.name}: tensor {entry.name} {kind} at byte {entry.offset}", hint=_HINT
            )
        end = entry.offset + entry.size_bytes
    if end != size:
        what = "truncated" if end > size else "longer than its header says"
        raise CheckpointError(f"shard {path.name} is {what}: {size} bytes, not {end}", hint=_HINT)
