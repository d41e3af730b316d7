"""Slots filled from a bank on the spark's own disk: hashed, mended, and never another's bytes."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from k3d.experts import staged_slices
from k3d.experts.bank_file import Bank
from k3d.experts.bank_header import BankHeader, held_mask
from k3d.experts.bank_layout import BankLayout
from k3d.experts.bank_writer import BankWriter
from k3d.experts.content_hash import content_hash
from k3d.experts.frame_worker import worker_with_banks
from k3d.experts.staged_slices import Served, StagedSlices
from k3d.fabric.facts import Facts, StagedBank
from k3d.fabric.records import Name
from tests.experts.tiny_experts import record_of, tiny_shape
from tests.staging.conftest import flip

SHAPE = tiny_shape()
EXPERTS = [(layer, expert) for layer in SHAPE.layers for expert in range(0, SHAPE.experts, 2)]
SERVED = Served("a" * 64, 1, 4, SHAPE, "m" * 64)
SIZE = SHAPE.slice_bytes(4)
HEADER = BankHeader(
    SERVED.model_digest, 1, 4, SHAPE, SIZE, map_digest=SERVED.map_digest,
    held=held_mask(SHAPE, EXPERTS),
)  # fmt: skip


def slice_bytes(layer: int, expert: int) -> bytes:
    return record_of(SHAPE, layer, expert)[SIZE : 2 * SIZE]


def make_bank(folder: Path, name: str = "here.bank", **changes: Any) -> Path:
    header = msgspec.structs.replace(HEADER, **changes)
    size = header.record_bytes
    with BankWriter(folder / name, header) as writer:
        for index, expert in enumerate(BankLayout.of(header).order):
            writer.put(index, slice_bytes(*expert)[:size].ljust(size, b"\1"))
        writer.publish()
    return folder / name


def read(staged: StagedSlices, layer: int, expert: int) -> bytes | None:
    into = bytearray(SIZE)
    digest = content_hash(slice_bytes(layer, expert))
    return bytes(into) if staged.read(layer, expert, digest, memoryview(into)) else None


def data_at(path: Path, layer: int, expert: int) -> int:
    bank = Bank(path)
    bank.close()
    index = bank.order.find(layer, expert)
    assert index is not None
    return bank.manifest.layout.offset(index)


def open_banks(folder: Path) -> list[str]:
    """Files of a folder that this process has open."""
    found = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [Path(path).name for path in found if Path(path).parent == folder]


@pytest.fixture
def staged(tmp_path: Path) -> StagedSlices:
    make_bank(tmp_path)
    found = StagedSlices(tmp_path, "spark-2")
    assert found.look(SERVED) == StagedBank("here.bank", len(EXPERTS))
    return found


def test_slices_are_read_by_their_hash(staged: StagedSlices) -> None:
    for layer, expert in EXPERTS:
        assert read(staged, layer, expert) == slice_bytes(layer, expert)
    assert read(staged, 1, 1) is None
    assert not staged.read(1, 0, content_hash(b"other"), memoryview(bytearray(SIZE)))
    staged.close()


def test_a_damaged_slice_is_not_served_and_put_back_when_its_bytes_come(
    staged: StagedSlices, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path, (layer, expert) = tmp_path / "here.bank", EXPERTS[5]
    sound = path.read_bytes()
    flip(path, data_at(path, layer, expert) + 9)
    assert read(staged, layer, expert) is None
    assert f"the record of layer {layer} expert {expert} is damaged" in caplog.text
    record = memoryview(slice_bytes(layer, expert))
    staged.mend(layer, expert, content_hash(b"other"), record)
    assert path.read_bytes() != sound
    assert read(staged, layer, expert) is None
    staged.mend(layer, expert, content_hash(record), record)
    assert path.read_bytes() == sound
    assert "was repaired" in caplog.text
    assert read(staged, layer, expert) == record
    staged.close()


def test_what_cannot_be_put_back_is_said_and_no_more(
    staged: StagedSlices, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, (layer, expert) = tmp_path / "here.bank", EXPERTS[0]
    flip(path, data_at(path, layer, expert))
    assert read(staged, layer, expert) is None
    make_bank(tmp_path, "other.bank").replace(path)
    record = memoryview(slice_bytes(layer, expert))
    staged.mend(layer, expert, content_hash(record), record)
    assert "another bank has taken its place" in caplog.text
    staged.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_digest": "b" * 64}, "is of model bbbbbbbbbbbb, not aaaaaaaaaaaa"),
        ({"slice_index": 2}, "is slice 3 of 4, not 2 of 4"),
        ({"slice_count": 8, "record_bytes": SIZE // 2}, "is slice 2 of 8, not 2 of 4"),
        (
            {"shape": msgspec.structs.replace(HEADER, shape=tiny_shape(latent=128)).shape,
             "record_bytes": tiny_shape(latent=128).slice_bytes(4)},
            "is cut for another expert shape",
        ),
    ],
)  # fmt: skip
def test_banks_of_no_use_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], reason: str
) -> None:
    caplog.set_level(logging.INFO)
    make_bank(tmp_path, **changes)
    staged = StagedSlices(tmp_path, "spark-2")
    for _ in range(2):
        found = staged.look(SERVED)
    assert (found.file, found.records) == (None, 0)
    assert reason in found.ignored[0]
    assert caplog.text.count(reason) == 1  # said once, not at every handshake
    assert read(staged, *EXPERTS[0]) is None


def test_a_damaged_manifest_makes_a_bank_of_no_use(tmp_path: Path) -> None:
    flip(make_bank(tmp_path), 60)
    staged = StagedSlices(tmp_path, "spark-2")
    found = staged.look(SERVED)
    assert found.file is None
    assert "damaged" in found.ignored[0]
    assert read(staged, *EXPERTS[0]) is None


def test_a_bank_of_another_map_gives_what_both_maps_have(tmp_path: Path) -> None:
    few = EXPERTS[:4]
    make_bank(tmp_path, "a.bank", map_digest="o" * 64, held=held_mask(SHAPE, [*few, (1, 1)]))
    staged = StagedSlices(tmp_path, "spark-2")
    found = staged.look(SERVED)
    assert (found.file, found.records) == ("a.bank", 5)
    assert "is of another map" in found.ignored[0]
    assert [read(staged, *expert) is not None for expert in EXPERTS] == [
        expert in few for expert in EXPERTS
    ]
    make_bank(tmp_path, "z.bank")
    assert staged.look(SERVED) == StagedBank("z.bank", len(EXPERTS))
    assert read(staged, 1, 1) == slice_bytes(1, 1)  # still there, should it be asked for
    staged.close()


def test_what_is_no_file_and_names_of_any_length_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "folder.bank").mkdir()
    os.mkfifo(tmp_path / "pipe.bank")
    for letter in "\u00e9\u4e2d\U0001f980":
        (tmp_path / f"{letter * 60}.bank").write_bytes(b"nothing")
    found = StagedSlices(tmp_path, "spark-2").look(SERVED)
    assert (found.file, len(found.ignored)) == (None, 3)
    assert len(msgspec.msgpack.encode(found)) < 1000


def test_no_folder_is_no_bank(tmp_path: Path) -> None:
    assert StagedSlices(tmp_path / "none", "spark-2").look(SERVED) == StagedBank(None, 0)


def test_a_worker_fills_its_slots_and_lets_go_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[tuple[int, int]] = []
    monkeypatch.setattr(
        staged_slices, "drop_pages", lambda _fd, offset, size: dropped.append((offset, size))
    )
    make_bank(tmp_path)
    facts = Facts(
        role="station", node="station", calling="spark-2", version="", capacity_bytes=2**20,
        model_digest=SERVED.model_digest, slice_index=1, slice_count=4, slots=40,
        slice_bytes=SIZE, shape=msgspec.to_builtins(SHAPE), dtype="bf16", epoch=1,
        placement_digest=f"{SERVED.map_digest}.content",
    )  # fmt: skip
    worker = worker_with_banks(tmp_path)(facts)
    worker.look_for_banks(facts)
    assert worker.bank == StagedBank("here.bank", len(EXPERTS))
    names = [
        Name(slot, layer, expert, content_hash(slice_bytes(layer, expert)))
        for slot, (layer, expert) in enumerate([*EXPERTS, (1, 1)])
    ]
    assert worker.fill(names) == [len(EXPERTS)]
    assert worker.loaded == len(EXPERTS)
    assert dropped == [(0, 0)]
    assert open_banks(tmp_path) == ["here.bank"]
    worker.commit(1)
    assert open_banks(tmp_path) == []
