"""A checkpoint folder: every tensor found by header offsets, read one at a time, consumed once."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from blake3 import blake3
from torch import Tensor

from k3d.errors import CheckpointError
from k3d.model.config import ModelConfig, refuse_shape
from k3d.safetensors_header import TensorEntry, read_header

PREFIX = "language_model."
VISION_PREFIXES = ("vision_tower.", "mm_projector.", "multi_modal_projector.")
INDEX = "model.safetensors.index.json"
EXPERTS = ".experts."
"""In the name of every tensor of a routed expert, and of no other."""

_TORCH = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16,
          "F16": torch.float16, "F8_E4M3": torch.uint8, "F8_E8M0": torch.uint8,
          "U8": torch.uint8, "I64": torch.int64, "I32": torch.int32}  # fmt: skip
_SAMPLE_BYTES = 64 * 1024
_PIECE_BYTES = 8 * 1024 * 1024
_ONCE_BYTES = 256 * 1024
"""Larger tensors are read once, and their pages let go: weights must not fill the page cache."""


@dataclass(frozen=True)
class Leftover:
    """What a text model leaves unread, for a person to see."""

    vision_tensors: int
    vision_bytes: int


class Checkpoint:
    """Tensors of a Kimi-K3 release, by their names without the `language_model.` prefix.

    `digests` has the blake3 of every tensor that was read, but of the experts': `digest` samples
    shards, and what is computed with should be what it was, to the last bit. Banks remember both.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.config = ModelConfig.from_folder(self.folder)
        self.shards = _shards(self.folder)
        self._entries: dict[str, TensorEntry] = {}
        self._vision: list[TensorEntry] = []
        for shard in self.shards:
            for entry in read_header(shard):
                self._add(entry)
        _check_index(self.folder, self._entries, self._vision)
        self._unread = set(self._entries)
        self.digests: dict[str, bytes] = {}
        self.digest = self._digest()

    def _add(self, entry: TensorEntry) -> None:
        if entry.name.startswith(VISION_PREFIXES):
            self._vision.append(entry)
            return
        if not entry.name.startswith(PREFIX):
            raise CheckpointError(
                f"shard {entry.path.name}: tensor {entry.name} belongs to no part of Kimi-K3",
                hint=f"text tensors are named {PREFIX}..., vision tensors vision_tower...",
            )
        name = entry.name.removeprefix(PREFIX)
        if name in self._entries:
            other = self._entries[name].path.name
            raise CheckpointError(
                f"tensor {entry.name} is in {other} and again in {entry.path.name}",
                hint="remove the stale shard",
            )
        self._entries[name] = entry

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        """Every tensor of the text model."""
        return list(self._entries)

    def entry(self, name: str) -> TensorEntry:
        try:
            return self._entries[name]
        except KeyError:
            raise CheckpointError(
                f"{self.folder} has no tensor {PREFIX}{name}",
                hint="the checkpoint is incomplete or config.json is of another model",
            ) from None

    def read(self, name: str, shape: tuple[int, ...] | None = None, *dtypes: str) -> Tensor:
        """Read one tensor and count it as consumed. FP8 and packed FP4 come as u8.

        `shape` and `dtypes`, when given, are what the model needs; another is refused by name.
        """
        entry = self._checked(name, shape, dtypes)
        if name not in self._unread:
            raise CheckpointError(f"tensor {entry.name} is read twice")
        self._unread.discard(name)
        raw = _bytes_of(entry)
        if EXPERTS not in name:  # their records have hashes of their own
            self.digests[name] = blake3(raw).digest()
        return _tensor(entry, raw)

    def peek(self, name: str, shape: tuple[int, ...] | None = None, *dtypes: str) -> Tensor:
        """Read a tensor without consuming it."""
        entry = self._checked(name, shape, dtypes)
        return _tensor(entry, _bytes_of(entry))

    def _checked(
        self, name: str, shape: tuple[int, ...] | None, dtypes: tuple[str, ...]
    ) -> TensorEntry:
        entry = self.entry(name)
        if shape is not None and entry.shape != shape:
            raise refuse_shape(entry.name, entry.shape, shape)
        if dtypes and entry.dtype not in dtypes:
            raise CheckpointError(
                f"tensor {entry.name} is {entry.dtype}, not {' or '.join(dtypes)}",
                hint="the shard is of another release format or damaged",
            )
        return entry

    def claim(self, names: list[str]) -> None:
        """Count tensors as consumed that are served from elsewhere or deliberately unused."""
        for name in names:
            self.entry(name)
        self._unread.difference_update(names)

    def hash_others(self) -> None:
        """Fill `digests` as reading every tensor outside the experts would, a piece at a time."""
        for name, entry in self._entries.items():
            if EXPERTS not in name and name not in self.digests:
                self.digests[name] = _hash_at(entry)

    def forget_reads(self) -> None:
        """Count nothing as consumed, to read some of it again."""
        self._unread = set(self._entries)

    def finish(self) -> Leftover:
        """Refuse a checkpoint that holds text tensors nobody read."""
        if self._unread:
            first = min(self._unread)
            raise CheckpointError(
                f"{len(self._unread)} tensors of {self.folder} are unknown to Kimi-K3, "
                f"{PREFIX}{first} among them",
                hint="the checkpoint is of another model or a newer release",
            )
        return Leftover(len(self._vision), sum(entry.size_bytes for entry in self._vision))

    def _digest(self) -> str:
        """Names the model: config, every tensor's place, and samples of every shard's data.

        Whole shards are not read (1.5 TB); the hashes in banks guard the content.
        """
        digest = blake3((self.folder / "config.json").read_bytes())
        for name in sorted(self._entries):
            entry = self._entries[name]
            place = f"{name} {entry.dtype} {entry.shape} {entry.offset}\n"
            digest.update(place.encode(errors="backslashreplace"))
        for shard in self.shards:
            size = shard.stat().st_size
            for offset in (size // 2, max(0, size - _SAMPLE_BYTES)):
                sample = bytearray(min(_SAMPLE_BYTES, size - offset))
                _read_at(shard, offset, sample)
                digest.update(sample)
        return digest.hexdigest()


def _hash_at(entry: TensorEntry) -> bytes:
    digest, done = blake3(), 0
    while done < entry.size_bytes:
        piece = bytearray(min(_PIECE_BYTES, entry.size_bytes - done))
        _read_at(entry.path, entry.offset + done, piece)
        digest.update(piece)
        done += len(piece)
    return digest.digest()


def _bytes_of(entry: TensorEntry) -> bytearray:
    raw = bytearray(entry.size_bytes)
    _read_at(entry.path, entry.offset, raw)
    return raw


def _tensor(entry: TensorEntry, raw: bytearray) -> Tensor:
    # u8 stands for FP8 and packed FP4: torch views them as what the kernels decode.
    if not raw:
        return torch.empty(entry.shape, dtype=_TORCH[entry.dtype])
    return torch.frombuffer(raw, dtype=_TORCH[entry.dtype]).view(entry.shape)


def _read_at(path: Path, offset: int, buffer: bytearray) -> None:
    view = memoryview(buffer)
    try:
        with path.open("rb", buffering=0) as file:
            done = 0
            while done < len(view):
                count = os.preadv(file.fileno(), [view[done:]], offset + done)
                if count == 0:
                    raise CheckpointError(
                        f"shard {path.name} ends before byte {offset + done}", hint="fetch it again"
                    )
                done += count
            if done >= _ONCE_BYTES:
                with suppress(OSError):  # advice that not every file system takes
                    os.posix_fadvise(file.fileno(), offset, done, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise CheckpointError(f"shard {path} cannot be read: {error.strerror}") from error


def _shards(folder: Path) -> list[Path]:
    """Shards named by the index, else the one file of an unsharded checkpoint."""
    index = folder / INDEX
    if index.exists():
        return [folder / name for name in sorted(set(_weight_map(index).values()))]
    single = folder / "model.safetensors"
    if single.exists():
        return [single]
    raise CheckpointError(
        f"{folder} holds neither {INDEX} nor model.safetensors", hint="name a checkpoint folder"
    )


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{index} cannot be read: {error}", hint="fetch it again") from error
    plain = isinstance(weight_map, dict) and all(
        isinstance(shard, str) and Path(shard).name == shard and shard.isprintable()
        for shard in weight_map.values()
    )
    if not plain:
        raise CheckpointError(f"{index}: weight_map is not tensor -> shard file")
    return weight_map


def _check_index(folder: Path, entries: dict[str, TensorEntry], vision: list[TensorEntry]) -> None:
    index = folder / INDEX
    if not index.exists():
        return
    weight_map = _weight_map(index)
    found = {entry.name: entry.path.name for entry in [*entries.values(), *vision]}
    for name, shard in weight_map.items():
        if found.get(name) != shard:
            where = f"it is in {found[name]}" if name in found else "no shard holds it"
            raise CheckpointError(
                f"the index places tensor {name} in {shard}, but {where}", hint="fetch both again"
            )
    for name, shard in found.items():
        if name not in weight_map:
            raise CheckpointError(f"tensor {name} of {shard} is not in the index")
