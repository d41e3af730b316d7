"""The files of a release that say what is in it: config.json, the index, the shards' headers."""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from k3d.errors import CheckpointError, NotFound
from k3d.safetensors_header import TensorEntry, read_header

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LARGEST_INDEX_BYTES = 1 << 30
_NUMBERED = re.compile(r".*-(\d{1,9})-of-(\d{1,9})\.safetensors", re.ASCII)
_HINT = "the index is damaged or still being copied; fetch it again"


class _Metadata(msgspec.Struct):
    total_size: int | None = None


class _Index(msgspec.Struct):
    weight_map: dict[str, str]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


@dataclass(frozen=True)
class ReleaseFiles:
    """Where they are; `index` is None for a release of one shard, or of a config alone."""

    config: Path
    index: Path | None


@dataclass(frozen=True)
class Index:
    """`shard_of` maps every tensor to its file; `total_bytes` is what the index claims."""

    path: Path
    shard_of: dict[str, str]
    total_bytes: int | None


def find_release(
    model: Path, config: Path | None = None, index: Path | None = None
) -> ReleaseFiles:
    """Files of a directory, or those named. A file's name may have a prefix, an index end in .gz.

    Raises NotFound naming what is missing, or what there are several of.
    """
    for path in (config, index):
        if path is not None and not path.is_file():
            raise NotFound(f"there is no file {path}", hint="name an existing file")
    if config is None and not model.is_dir():
        raise NotFound(f"there is no directory {model}", hint="name a checkpoint's directory")
    found = config or _one(model, "config.json")
    if found is None:
        raise NotFound(
            f"{model} holds no config.json", hint="name a checkpoint's directory, or --config FILE"
        )
    return ReleaseFiles(found, index or _one(model, INDEX) or _one(model, f"{INDEX}.gz"))


def _one(folder: Path, name: str) -> Path | None:
    """The file of that name, else the one file whose name ends in -NAME."""
    if (folder / name).is_file():
        return folder / name
    known = ("tokenizer-", "generation-", "preprocessor-")
    found = [p for p in sorted(folder.glob(f"*-{name}")) if not p.name.startswith(known)]
    if len(found) > 1:
        raise NotFound(
            f"{folder} holds {len(found)} files that end in {name}",
            hint="say which with --config and --index",
        )
    return found[0] if found else None


def read_index(path: Path) -> Index:
    """Raises CheckpointError naming the file and what is wrong with it."""
    try:
        with path.open("rb") as file:
            packed = path.suffix == ".gz"
            raw = (gzip.GzipFile(fileobj=file) if packed else file).read(LARGEST_INDEX_BYTES + 1)
        if len(raw) > LARGEST_INDEX_BYTES:
            raise CheckpointError(f"{path} is larger than {LARGEST_INDEX_BYTES} bytes", hint=_HINT)
        document = msgspec.json.decode(raw, type=_Index)
    except (EOFError, zlib.error) as error:
        raise CheckpointError(f"{path} is truncated or no gzip file", hint=_HINT) from error
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror or error}", hint=_HINT
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not an index: {error}", hint=_HINT) from error
    for name, shard in document.weight_map.items():
        if Path(shard).name != shard or not shard.isprintable():
            raise CheckpointError(
                f"{path} places {name!r} in {shard!r}, which is no file name", hint=_HINT
            )
    if not document.weight_map:
        raise CheckpointError(f"{path} names no tensor", hint=_HINT)
    _check_numbering(path, set(document.weight_map.values()))
    return Index(path, document.weight_map, document.metadata.total_size)


def _check_numbering(path: Path, shards: set[str]) -> None:
    """Shards named N-of-M are M, numbered from 1. Raises CheckpointError naming one that is not."""
    totals = {int(match[2]) for shard in shards if (match := _NUMBERED.fullmatch(shard))}
    if not totals:
        return
    width = max(totals)
    wrong = [
        shard
        for shard in sorted(shards)
        if not (match := _NUMBERED.fullmatch(shard))
        or not 1 <= int(match[1]) <= int(match[2]) == width
    ]
    if wrong or len(shards) != width:
        raise CheckpointError(
            f"{path} names {len(shards)} shards of {width}"
            + (f", {wrong[0]} among them" if wrong else ""),
            hint=_HINT,
        )


def shards_at_hand(folder: Path, index: Index | None) -> list[Path]:
    """The release's shards, or none when none of them is here.

    Raises CheckpointError when some are missing.
    """
    names = sorted(set(index.shard_of.values())) if index else [SINGLE]
    here = [folder / name for name in names if (folder / name).is_file()]
    if here and len(here) < len(names):
        missing = next(name for name in names if not (folder / name).is_file())
        raise CheckpointError(
            f"{len(names) - len(here)} of {len(names)} shards are missing in {folder}, {missing} "
            "among them",
            hint="fetch them, or count from config and index with --no-headers",
        )
    return here


def read_headers(shards: list[Path], index: Index | None) -> dict[str, TensorEntry]:
    """Every tensor of the shards. Raises CheckpointError where shards and index disagree."""
    entries: dict[str, TensorEntry] = {}
    for shard in shards:
        for entry in read_header(shard):
            other = entries.setdefault(entry.name, entry)
            if other is not entry:
                raise CheckpointError(
                    f"tensor {entry.name!r} is in {other.path.name} and again in {shard.name}",
                    hint="remove the stale shard",
                )
            if index is not None and index.shard_of.get(entry.name) != shard.name:
                claimed = index.shard_of.get(entry.name, "no shard")
                raise CheckpointError(
                    f"tensor {entry.name!r} is in {shard.name}, and the index says {claimed}",
                    hint="fetch both again",
                )
    if index is not None and len(entries) < len(index.shard_of):
        name = next(name for name in index.shard_of if name not in entries)
        raise CheckpointError(
            f"the index places tensor {name!r} in {index.shard_of[name]}, and it is not there",
            hint="fetch both again",
        )
    return entries
