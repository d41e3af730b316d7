"""Damage for safetensors shards: headers rewritten by hand, checked by nobody."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Header = dict[str, Any]
INDEX = "model.safetensors.index.json"


def copy_of(source: Path, target: Path) -> Path:
    """A checkpoint folder that a test may damage."""
    return Path(shutil.copytree(source, target))


def read_shard(path: Path) -> tuple[Header, bytes]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write_shard(path: Path, header: Header | bytes, data: bytes) -> None:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def edit_header(path: Path, edit: Callable[[Header], object]) -> None:
    header, data = read_shard(path)
    edit(header)
    write_shard(path, header, data)


def edit_json(path: Path, edit: Callable[[Any], object]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def shard_of(folder: Path, tensor: str) -> Path:
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][tensor]


def overwrite(folder: Path, tensor: str, data: bytes, at: int = 0) -> None:
    """Put bytes into a tensor's data."""
    path = shard_of(folder, tensor)
    header, body = read_shard(path)
    start = header[tensor]["data_offsets"][0] + at
    write_shard(path, header, body[:start] + data + body[start + len(data) :])


def remove_tensor(folder: Path, tensor: str) -> None:
    """Take a tensor out of shard and index, leaving a well-formed checkpoint without it."""
    path = shard_of(folder, tensor)
    header, body = read_shard(path)
    begin, end = header.pop(tensor)["data_offsets"]
    for name, entry in header.items():
        if name != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    write_shard(path, header, body[:begin] + body[end:])
    edit_json(folder / INDEX, lambda index: index["weight_map"].pop(tensor))


def add_tensor(folder: Path, tensor: str, dtype: str, shape: list[int], data: bytes) -> None:
    """Append a tensor to the first shard and name it in the index."""
    path = sorted(folder.glob("*.safetensors"))[0]
    header, body = read_shard(path)
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
    write_shard(path, header | {tensor: entry}, body + data)
    edit_json(folder / INDEX, lambda index: index["weight_map"].update({tensor: path.name}))


def replace_tensor(folder: Path, tensor: str, dtype: str, shape: list[int], data: bytes) -> None:
    remove_tensor(folder, tensor)
    add_tensor(folder, tensor, dtype, shape, data)
