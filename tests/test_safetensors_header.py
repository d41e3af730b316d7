"""Shard headers: every malformed one is refused with a sentence that names the shard."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from k3d.errors import CheckpointError
from k3d.safetensors_header import read_header
from tests.model.shard_editing import write_shard

A = {"dtype": "U8", "shape": [2, 3], "data_offsets": [0, 6]}
B = {"dtype": "BF16", "shape": [4], "data_offsets": [6, 14]}


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return tmp_path / "model-00001-of-000001.safetensors"


def refusal(shard: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_header(shard)
    assert shard.name in caught.value.message
    assert caught.value.hint
    return caught.value.message


def test_reads_what_the_library_writes(shard: Path) -> None:
    tensors = {
        "x": torch.arange(6, dtype=torch.float32).view(2, 3),
        "scalar": torch.tensor(1.0),
        "empty": torch.empty(0, 4),
        "f8": torch.zeros(3, dtype=torch.float8_e4m3fn),
    }
    save_file(tensors, shard, metadata={"format": "pt"})
    entries = {entry.name: entry for entry in read_header(shard)}
    assert entries.keys() == tensors.keys()
    raw = shard.read_bytes()
    for name, tensor in tensors.items():
        entry = entries[name]
        assert entry.shape == tuple(tensor.shape)
        assert entry.size_bytes == tensor.numel() * tensor.element_size()
        stored = raw[entry.offset : entry.offset + entry.size_bytes]
        assert stored == bytes(tensor.view(-1).view(torch.uint8).tolist())


def test_order_in_the_header_is_free(shard: Path) -> None:
    write_shard(shard, {"b": B, "a": A}, bytes(14))
    assert [entry.name for entry in read_header(shard)] == ["b", "a"]


@pytest.mark.parametrize("size", [0, 1, 7])
def test_shorter_than_its_length_field(shard: Path, size: int) -> None:
    shard.write_bytes(bytes(size))
    assert f"{size} bytes" in refusal(shard)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**31, 10**9, 100])
def test_announced_header_longer_than_the_file(shard: Path, length: int) -> None:
    shard.write_bytes(struct.pack("<Q", length) + b"{}")
    assert str(length) in refusal(shard)


@pytest.mark.parametrize("raw", [b"{", b"nonsense", b"\xff\xfe\x00", b"[" * 50_000, b"", b"{}x"])
def test_not_json(shard: Path, raw: bytes) -> None:
    write_shard(shard, raw, b"")
    assert "JSON" in refusal(shard)


@pytest.mark.parametrize("raw", [b"[]", b"3", b"null"])
def test_not_an_object(shard: Path, raw: bytes) -> None:
    write_shard(shard, raw, b"")
    assert "not an object" in refusal(shard)


def test_duplicate_tensor(shard: Path) -> None:
    entry = json.dumps(A)
    write_shard(shard, f'{{"a": {entry}, "a": {entry}}}'.encode(), bytes(6))
    assert "tensor a twice" in refusal(shard)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "F4"},
        {"dtype": None},
        {"dtype": ["U8"]},
        {"shape": [2, -3]},
        {"shape": [2.0, 3]},
        {"shape": "6"},
        {"shape": [2, 4]},
        {"shape": [2**40, 2**40]},
        {"data_offsets": [0]},
        {"data_offsets": [6, 0]},
        {"data_offsets": [-6, 0]},
        {"data_offsets": [0, 6.0]},
        {"data_offsets": None},
        {"dtype": "BF16"},
    ],
)
def test_entries_that_contradict_themselves(shard: Path, change: dict[str, Any]) -> None:
    write_shard(shard, {"a": A | change}, bytes(6))
    assert "tensor a" in refusal(shard)


@pytest.mark.parametrize("entry", [None, [], {}, {"dtype": "U8", "shape": [6]}])
def test_entries_without_their_parts(shard: Path, entry: object) -> None:
    write_shard(shard, {"a": entry}, bytes(6))
    assert "tensor a has no" in refusal(shard)


def test_gap(shard: Path) -> None:
    write_shard(shard, {"a": A, "b": B | {"data_offsets": [8, 16]}}, bytes(16))
    assert "tensor b leaves a gap" in refusal(shard)


def test_overlap(shard: Path) -> None:
    write_shard(shard, {"a": A, "b": B | {"data_offsets": [4, 12]}}, bytes(12))
    assert "tensor b overlaps" in refusal(shard)


def test_truncated(shard: Path) -> None:
    write_shard(shard, {"a": A, "b": B}, bytes(13))
    assert "truncated" in refusal(shard)


def test_trailing_bytes(shard: Path) -> None:
    write_shard(shard, {"a": A, "b": B}, bytes(15))
    assert "longer" in refusal(shard)


def test_missing_and_unreadable(shard: Path, tmp_path: Path) -> None:
    assert "missing" in refusal(shard)
    shard.mkdir()
    assert "cannot be read" in refusal(shard)


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_is_refused_or_harmless(shard: Path, seed: int) -> None:
    """Any header byte overwritten: a CheckpointError, or entries that still cover the file."""
    source = random.Random(seed)
    write_shard(shard, {"__metadata__": {"format": "pt"}, "a": A, "b": B}, bytes(14))
    whole = shard.read_bytes()
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(source.choice([1, 1, 1, 2, 5])):
            damaged[source.randrange(len(whole) - 14)] = source.randrange(256)
        shard.write_bytes(damaged)
        message = ""
        entries = []
        try:
            entries = read_header(shard)
        except CheckpointError as error:
            message = error.message
        if message:
            assert shard.name in message, f"seed {seed}"
        else:
            covered = sum(entry.size_bytes for entry in entries)
            (length,) = struct.unpack("<Q", damaged[:8])
            assert covered == len(whole) - 8 - length, f"seed {seed}"
